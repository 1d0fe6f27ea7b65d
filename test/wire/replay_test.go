package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// differences are all ways in which a request of ours may differ from a recorded one.
var differences = []fakemodel.Difference{
	fakemodel.EchoKeepsEmptyMembers,
}

// tally counts what was replayed.
type tally struct {
	recordings, exchanges int
	// differing counts, by name, the requests that differ in this way.
	differing map[string]int
}

func (t *tally) String() string {
	text := fmt.Sprintf("%d recordings, %d exchanges replayed", t.recordings, t.exchanges)
	for _, d := range differences {
		text += fmt.Sprintf("; %d requests differ in: %s (%s)", t.differing[d.Name], d.Name, d.Why)
	}
	return text
}

// recorded is what a recording says of its run.
type recorded struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	MaxTokens           int32 `json:"max_tokens"`
	MaxCompletionTokens int32 `json:"max_completion_tokens"`
}

// replay runs what was recorded and compares answer and requests.
func (t *tally) replay(ctx context.Context, world *runs.World, name, file string) {
	GinkgoHelper()
	exchanges, err := fakemodel.ReadCassette(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(exchanges).NotTo(BeEmpty())
	server, err := fakemodel.StartReplay(exchanges)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(server.Close()).To(Succeed()) }()
	first := recorded{}
	Expect(json.Unmarshal(exchanges[0].RequestBody, &first)).To(Succeed())
	create(ctx, world, name, server.Endpoint(fakemodel.Chat), first)

	run := world.Await(ctx, name, v1alpha1.ReasonCompleted)
	Expect(run.Status.Result.Text).To(Equal(answerOf(exchanges[len(exchanges)-1])))
	Expect(run.Status.Turns).To(BeEquivalentTo(len(exchanges)))
	Expect(run.Status.Usage.Estimated).To(BeFalse())
	Expect(server.Refusals()).To(BeEmpty())
	requests := server.Requests()
	Expect(requests).To(HaveLen(len(exchanges)))
	t.recordings++
	for i, request := range requests {
		Expect(fakemodel.DiffRequests(request.Body, exchanges[i].RequestBody, differences...)).To(BeEmpty(), "request %d, - recorded, + sent", i+1)
		t.exchanges++
		for j, d := range differences {
			others := append(append([]fakemodel.Difference{}, differences[:j]...), differences[j+1:]...)
			if fakemodel.DiffRequests(request.Body, exchanges[i].RequestBody, others...) != "" {
				t.differing[d.Name]++
			}
		}
	}
}

// create makes the objects of a run that begins as the recording does. Its tools are the
// tool server's.
func create(ctx context.Context, world *runs.World, name, endpoint string, first recorded) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name}
	world.Create(ctx, &v1alpha1.Model{ObjectMeta: meta, Spec: v1alpha1.ModelSpec{
		Provider: v1alpha1.ProviderOpenAI, Model: first.Model, Endpoint: endpoint,
		MaxOutputTokens: max(first.MaxTokens, first.MaxCompletionTokens),
	}})
	run := &v1alpha1.AgentRun{ObjectMeta: meta, Spec: v1alpha1.AgentRunSpec{
		ModelRef: v1alpha1.LocalReference{Name: name}, HumanInput: v1alpha1.HumanInputDisabled,
	}}
	for _, m := range first.Messages {
		switch m.Role {
		case "system":
			run.Spec.SystemPrompt = m.Content
		case "user":
			run.Spec.Prompt = m.Content
		default:
			Fail("the recording begins in the middle of a run")
		}
	}
	if len(first.Tools) > 0 {
		policy := v1alpha1.ToolPolicySpec{
			Servers: []v1alpha1.ToolServer{{Name: "calc", HTTP: &v1alpha1.HTTPServer{URL: env.ToolsURL + "/calc"}}},
			Tools:   []v1alpha1.ToolProperties{{Match: []string{"calc.*"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel}},
			Rules:   []v1alpha1.ToolRule{{Name: "everything", Match: []string{"calc.*"}, Action: v1alpha1.ActionAllow}},
		}
		for _, tool := range first.Tools {
			policy.Servers[0].HTTP.Tools = append(policy.Servers[0].HTTP.Tools, v1alpha1.HTTPTool{
				Name: tool.Function.Name, Description: tool.Function.Description,
				InputSchema: runtime.RawExtension{Raw: tool.Function.Parameters},
			})
		}
		world.Create(ctx, &v1alpha1.ToolPolicy{ObjectMeta: meta, Spec: policy})
		run.Spec.ToolPolicyRefs = []v1alpha1.LocalReference{{Name: name}}
	}
	world.Create(ctx, run)
}

// answerOf is what a recorded response says to the user.
func answerOf(exchange fakemodel.Exchange) string {
	GinkgoHelper()
	var response struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	Expect(json.Unmarshal(exchange.ResponseBody, &response)).To(Succeed())
	Expect(response.Choices).To(HaveLen(1))
	Expect(response.Choices[0].Message.Content).NotTo(BeEmpty())
	return response.Choices[0].Message.Content
}

// replayAll replays every recording below a folder.
func replayAll(ctx context.Context, files []string) *tally {
	GinkgoHelper()
	world := runs.New(ctx, env, "wire")
	counts := &tally{differing: map[string]int{}}
	for i, file := range files {
		By(file)
		counts.replay(ctx, world, fmt.Sprintf("recording-%d", i), file)
	}
	AddReportEntry(counts.String(), ReportEntryVisibilityAlways)
	return counts
}

var _ = Describe("A recorded conversation", func() {
	It("comes out of a run again: our own recordings", func(ctx SpecContext) {
		files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		counts := replayAll(ctx, files)
		Expect(counts.recordings).To(Equal(3))
		Expect(counts.exchanges).To(Equal(5))
		Expect(counts.differing).To(HaveKeyWithValue(fakemodel.EchoKeepsEmptyMembers.Name, 2))
	})

	It("comes out of a run again: the vendor's, by PAWL_WIRE", func(ctx SpecContext) {
		folder := os.Getenv("PAWL_WIRE")
		if folder == "" {
			Skip("PAWL_WIRE is not set: it names the folder with recorded exchanges")
		}
		files, err := filepath.Glob(filepath.Join(folder, "TestOpenAICommon", "*", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty(), "PAWL_WIRE names a folder without TestOpenAICommon/<model>/<case>.yaml")
		found := map[string]bool{}
		for _, file := range files {
			found[strings.TrimSuffix(filepath.Base(file), ".yaml")] = true
		}
		Expect(found).To(And(HaveKey("simple"), HaveKey("tool"), HaveKey("multi_tool")))
		replayAll(ctx, files)
	})
})
