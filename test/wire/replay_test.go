package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
	"github.com/pawl-run/pawl/test/runs"
)

// replay runs what was recorded and compares answer and requests.
func (t *tally) replay(ctx context.Context, world *runs.World, name string, w recordedWire, exchanges []fakemodel.Exchange) {
	GinkgoHelper()
	server, err := fakemodel.StartReplay(exchanges)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(server.Close()).To(Succeed()) }()
	first, err := w.begin(exchanges[0])
	Expect(err).NotTo(HaveOccurred())
	create(ctx, world, name, &v1alpha1.ModelSpec{Provider: w.provider(), Endpoint: server.Endpoint(w.wire())}, first)

	answer, err := w.answer(exchanges[len(exchanges)-1])
	Expect(err).NotTo(HaveOccurred())
	Expect(answer).NotTo(BeEmpty())
	run := world.AwaitEnd(ctx, name)
	Expect(server.Refusals()).To(BeEmpty())
	Expect(runs.Succeeded(run).Reason).To(BeEquivalentTo(v1alpha1.ReasonCompleted), runs.Succeeded(run).Message)
	Expect(run.Status.Result.Text).To(Equal(answer))
	Expect(run.Status.Turns).To(BeEquivalentTo(len(exchanges)))
	Expect(run.Status.Usage.Estimated).To(BeFalse())
	requests := server.Requests()
	Expect(requests).To(HaveLen(len(exchanges)))
	t.recordings++
	for i, request := range requests {
		t.compare(w, i+1, request.Body, exchanges[i].RequestBody)
	}
}

// differencesOf are the wire's own differences and those of every wire.
func differencesOf(w recordedWire) []fakemodel.Difference {
	return append(w.differences(), fakemodel.OffersToReadAgain)
}

// compare counts the named differences and accepts no other.
func (t *tally) compare(w recordedWire, number int, sent, recorded []byte) {
	GinkgoHelper()
	differences := differencesOf(w)
	Expect(fakemodel.DiffRequests(sent, recorded, differences...)).To(BeEmpty(), "request %d, - recorded, + sent", number)
	t.exchanges++
	for i, d := range differences {
		others := slices.Delete(slices.Clone(differences), i, i+1)
		if fakemodel.DiffRequests(sent, recorded, others...) != "" {
			t.differing[d.Name]++
		}
	}
}

// create makes the objects of a run that begins as the recording does. Its tools are the
// tool server's.
func create(ctx context.Context, world *runs.World, name string, spec *v1alpha1.ModelSpec, first beginning) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: name}
	spec.Model, spec.MaxOutputTokens = first.model, first.maxOutputTokens
	if len(first.parameters) > 0 {
		parameters, err := json.Marshal(first.parameters)
		Expect(err).NotTo(HaveOccurred())
		spec.Parameters = &runtime.RawExtension{Raw: parameters}
	}
	world.Create(ctx, &v1alpha1.Model{ObjectMeta: meta, Spec: *spec})
	run := &v1alpha1.AgentRun{ObjectMeta: meta, Spec: v1alpha1.AgentRunSpec{
		ModelRef: v1alpha1.LocalReference{Name: name}, HumanInput: v1alpha1.HumanInputDisabled,
		SystemPrompt: first.systemPrompt, Prompt: first.prompt,
	}}
	if len(first.tools) > 0 {
		policy := v1alpha1.ToolPolicySpec{
			Servers: []v1alpha1.ToolServer{{Name: "calc", HTTP: &v1alpha1.HTTPServer{URL: env.ToolsURL + "/calc"}}},
			Tools:   []v1alpha1.ToolProperties{{Match: []string{"calc.*"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel}},
			Rules:   []v1alpha1.ToolRule{{Name: "everything", Match: []string{"calc.*"}, Action: v1alpha1.ActionAllow}},
		}
		for _, tool := range first.tools {
			policy.Servers[0].HTTP.Tools = append(policy.Servers[0].HTTP.Tools, v1alpha1.HTTPTool{
				Name: tool.Name, Description: tool.Description, InputSchema: runtime.RawExtension{Raw: tool.Schema},
			})
		}
		world.Create(ctx, &v1alpha1.ToolPolicy{ObjectMeta: meta, Spec: policy})
		run.Spec.ToolPolicyRefs = []v1alpha1.LocalReference{{Name: name}}
	}
	world.Create(ctx, run)
}

// replayAll replays every recording below a folder, and says what it has replayed.
func replayAll(ctx context.Context, folder string) tallies {
	GinkgoHelper()
	world := runs.New(ctx, env, "wire")
	counts := tallies{}
	for i, file := range recordingsBelow(folder) {
		By(file)
		exchanges, err := fakemodel.ReadCassette(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(exchanges).NotTo(BeEmpty(), file)
		w, err := wireOf(exchanges[0])
		Expect(err).NotTo(HaveOccurred(), file)
		Expect(w).NotTo(BeNil(), "%s was recorded on a wire that nobody here reads: %s", file, exchanges[0].URL)
		counts.of(w).replay(ctx, world, fmt.Sprintf("recording-%d", i), w, exchanges)
	}
	AddReportEntry(counts.String(), ReportEntryVisibilityAlways)
	return counts
}

func recordingsBelow(folder string) []string {
	GinkgoHelper()
	var files []string
	Expect(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".yaml") {
			files = append(files, path)
		}
		return err
	})).To(Succeed())
	Expect(files).NotTo(BeEmpty(), "%s holds no recording", folder)
	return files
}

var _ = Describe("A recorded conversation", func() {
	It("comes out of a run again: our own recordings", func(ctx SpecContext) {
		counts := replayAll(ctx, "testdata")
		for _, w := range recordedWires {
			By(w.wire().Name())
			one := counts.of(w)
			Expect(one.recordings).To(BeNumerically(">=", 3), "an answer, a call, and several calls at once")
			Expect(one.exchanges).To(BeNumerically(">", one.recordings))
			for _, d := range differencesOf(w) {
				Expect(one.differing).To(HaveKey(d.Name), "a difference that no recording has is none")
			}
		}
	})

	It("comes out of a run again: the vendors', by PAWL_WIRE", func(ctx SpecContext) {
		folder := os.Getenv("PAWL_WIRE")
		if folder == "" {
			Skip("PAWL_WIRE is not set: it names the folder with recorded exchanges")
		}
		counts := replayAll(ctx, folder)
		Expect(counts.recordings()).To(Equal(len(recordingsBelow(folder))))
		for _, w := range recordedWires {
			Expect(counts.of(w).recordings).NotTo(BeZero(), "PAWL_WIRE has no recording of %s", w.wire().Name())
		}
	})
})
