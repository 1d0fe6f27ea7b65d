package aimock

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// fixture is one answer of the server.
type fixture struct {
	Match    match    `json:"match"`
	Chaos    *chaos   `json:"chaos,omitempty"`
	Response response `json:"response"`
}

// match says which requests it answers: by the model's name, which is different for each
// run, and by how many such requests there were before.
type match struct {
	Model string `json:"model"`
	// SequenceIndex is nil for every request that no other fixture answers.
	SequenceIndex *int `json:"sequenceIndex,omitempty"`
}

// chaos replaces the response by a failure, each with this probability.
type chaos struct {
	Drop       int `json:"dropRate,omitempty"`
	Malformed  int `json:"malformedRate,omitempty"`
	Disconnect int `json:"disconnectRate,omitempty"`
	RateLimit  int `json:"rateLimitRate,omitempty"`
}

// response is what the model says.
type response struct {
	Content   string         `json:"content,omitempty"`
	ToolCalls []toolCall     `json:"toolCalls,omitempty"`
	Usage     map[string]int `json:"usage,omitempty"`
	// FinishReason replaces the server's own, in the words of Chat Completions.
	FinishReason string         `json:"finishReason,omitempty"`
	Error        *responseError `json:"error,omitempty"`
	Status       int            `json:"status,omitempty"`
}

type responseError struct {
	Message string `json:"message"`
	Type    string `json:"type"`
}

type toolCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

var listening = regexp.MustCompile(`listening on (http://127\.0\.0\.1:[0-9]+)`)

// serve starts the server and gives its URL. It refuses what no fixture answers.
func serve(ctx SpecContext, fixtures []fixture) string {
	GinkgoHelper()
	data, err := json.Marshal(map[string]any{"fixtures": fixtures})
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "fixtures.json")
	Expect(os.WriteFile(file, data, 0o600)).To(Succeed())
	_, err = env.Plane.StartProcess("aimock", exec.Command("node", scriptPath, "-p", "0", "-f", file, "--strict"))
	Expect(err).NotTo(HaveOccurred())
	var url string
	Eventually(ctx, func(g Gomega) {
		log, err := os.ReadFile(env.Plane.LogFile("aimock"))
		g.Expect(err).NotTo(HaveOccurred())
		found := listening.FindSubmatch(log)
		g.Expect(found).NotTo(BeNil(), "it does not listen yet:\n%s", log)
		url = string(found[1])
	}).WithTimeout(30 * time.Second).WithPolling(50 * time.Millisecond).Should(Succeed())
	return url
}

// journalled counts the requests that the server has noted for a model.
func journalled(url, model string) (count int) {
	GinkgoHelper()
	reply, err := http.Get(url + "/__aimock/journal?limit=1000")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = reply.Body.Close() }()
	Expect(reply.StatusCode).To(Equal(http.StatusOK))
	var entries []struct {
		Body struct {
			Model string `json:"model"`
		} `json:"body"`
	}
	Expect(json.NewDecoder(reply.Body).Decode(&entries)).To(Succeed())
	for _, e := range entries {
		if e.Body.Model == model {
			count++
		}
	}
	return count
}

// at is the n-th request, from 0.
func at(n int) *int { return &n }
