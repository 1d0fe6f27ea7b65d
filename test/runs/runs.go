// Package runs helps suites that move whole runs through an operator: it applies objects
// written as YAML to a namespace of its own, waits for runs, gives verdicts, reads journals
// back, and shows all of it when a spec fails.
package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/test/environment"
)

// patience is how long a run may take to get somewhere; polling is how often it is looked
// at.
const (
	patience = 30 * time.Second
	polling  = 50 * time.Millisecond
)

// World is a namespace with runs in it.
type World struct {
	Namespace string
	on        Cluster
}

// Cluster is where runs are, and who moves them.
type Cluster struct {
	// Admin is a client that may do everything.
	Admin client.Client
	// Kubectl runs kubectl and returns what it prints.
	Kubectl func(ctx context.Context, args ...string) (string, error)
	// OperatorLog is the path of what the operator has logged.
	OperatorLog string
}

// New makes a namespace. It goes with the control plane; when the spec fails, everything
// about its runs is shown.
func New(ctx context.Context, env *environment.Environment, prefix string) *World {
	ginkgo.GinkgoHelper()
	return On(ctx, Cluster{Admin: env.Admin, Kubectl: env.Plane.Kubectl, OperatorLog: env.OperatorLog()}, prefix)
}

// On is New for a cluster of any kind.
func On(ctx context.Context, on Cluster, prefix string) *World {
	ginkgo.GinkgoHelper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	gomega.Expect(on.Admin.Create(ctx, object)).To(gomega.Succeed())
	w := &World{Namespace: object.Name, on: on}
	ginkgo.DeferCleanup(func(ctx ginkgo.SpecContext) {
		if ginkgo.CurrentSpecReport().Failed() {
			ginkgo.AddReportEntry("namespace "+w.Namespace, w.dump(ctx), ginkgo.ReportEntryVisibilityFailureOrVerbose)
		}
	})
	return w
}

// Apply creates objects written as YAML documents. Words to replace and their
// replacements follow in pairs.
func (w *World) Apply(ctx context.Context, text string, replacements ...string) {
	ginkgo.GinkgoHelper()
	text = strings.NewReplacer(replacements...).Replace(text)
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte("---\n"+text)), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := documents.Decode(object)
		if err == io.EOF {
			return
		}
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		if len(object.Object) == 0 {
			continue
		}
		object.SetNamespace(w.Namespace)
		strict := client.WithFieldValidation(w.on.Admin, metav1.FieldValidationStrict)
		gomega.Expect(strict.Create(ctx, object)).To(gomega.Succeed(), text)
	}
}

// Create creates an object in the namespace.
func (w *World) Create(ctx context.Context, object client.Object) {
	ginkgo.GinkgoHelper()
	object.SetNamespace(w.Namespace)
	gomega.Expect(w.on.Admin.Create(ctx, object)).To(gomega.Succeed())
}

func (w *World) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.Namespace, Name: name}
}

// Get reads a run.
func (w *World) Get(ctx context.Context, name string) *v1alpha1.AgentRun {
	ginkgo.GinkgoHelper()
	run := &v1alpha1.AgentRun{}
	gomega.Expect(w.on.Admin.Get(ctx, w.key(name), run)).To(gomega.Succeed())
	return run
}

// Succeeded is a run's summary condition.
func Succeeded(run *v1alpha1.AgentRun) metav1.Condition {
	if c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		return *c
	}
	return metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown}
}

// Await waits until a run has the reason. A run that has ended with another is not waited
// for.
func (w *World) Await(ctx context.Context, name string, reason v1alpha1.Reason) *v1alpha1.AgentRun {
	ginkgo.GinkgoHelper()
	return w.AwaitWithin(ctx, patience, name, reason)
}

// AwaitWithin is Await with a limit of its own.
func (w *World) AwaitWithin(ctx context.Context, limit time.Duration, name string, reason v1alpha1.Reason) *v1alpha1.AgentRun {
	ginkgo.GinkgoHelper()
	run := &v1alpha1.AgentRun{}
	gomega.Eventually(ctx, func() (string, error) {
		if err := w.on.Admin.Get(ctx, w.key(name), run); err != nil {
			return "", err
		}
		c := Succeeded(run)
		if c.Reason != string(reason) && c.Status != metav1.ConditionUnknown {
			return c.Reason, gomega.StopTrying(fmt.Sprintf("%s/%s has ended as %s: %s", w.Namespace, name, c.Reason, c.Message))
		}
		return c.Reason, nil
	}).WithTimeout(limit).WithPolling(polling).Should(gomega.BeEquivalentTo(reason), "run "+w.Namespace+"/"+name)
	return run
}

// AwaitEnd waits until a run has ended, however.
func (w *World) AwaitEnd(ctx context.Context, name string) *v1alpha1.AgentRun {
	ginkgo.GinkgoHelper()
	run := &v1alpha1.AgentRun{}
	gomega.Eventually(ctx, func(g gomega.Gomega) {
		g.Expect(w.on.Admin.Get(ctx, w.key(name), run)).To(gomega.Succeed())
		g.Expect(Succeeded(run).Status).NotTo(gomega.Equal(metav1.ConditionUnknown))
	}).WithTimeout(patience).WithPolling(polling).Should(gomega.Succeed(), "run "+w.Namespace+"/"+name)
	return run
}

// Annotate sets annotations of a run as the administrator, who may give every verdict.
func (w *World) Annotate(ctx context.Context, name string, annotations map[string]string) {
	ginkgo.GinkgoHelper()
	w.patch(ctx, name, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// Approve waits for a request for approval and approves it.
func (w *World) Approve(ctx context.Context, name string) *v1alpha1.AgentRun {
	ginkgo.GinkgoHelper()
	run := w.Await(ctx, name, v1alpha1.ReasonApprovalRequired)
	w.Annotate(ctx, name, map[string]string{v1alpha1.AnnotationApprove: run.Status.Pending.Digest})
	return run
}

// SetState sets spec.state.
func (w *World) SetState(ctx context.Context, name string, state v1alpha1.DesiredState) {
	ginkgo.GinkgoHelper()
	w.patch(ctx, name, map[string]any{"spec": map[string]any{"state": state}})
}

func (w *World) patch(ctx context.Context, name string, change any) {
	ginkgo.GinkgoHelper()
	data, err := json.Marshal(change)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	run := &v1alpha1.AgentRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	gomega.Expect(w.on.Admin.Patch(ctx, run, client.RawPatch(types.MergePatchType, data))).To(gomega.Succeed())
}

// Journal reads a run's journal and folds it, which verifies its chain. Every call of a
// closed turn has exactly one result.
func (w *World) Journal(ctx context.Context, run *v1alpha1.AgentRun) ([]journal.Record, *journal.State) {
	ginkgo.GinkgoHelper()
	_, records, err := store.New(w.on.Admin, nil).Load(ctx, run)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	state, err := journal.Fold(string(run.UID), records)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	results := map[string]int{}
	for _, completed := range Events[journal.CallCompleted](records) {
		if completed.Final {
			results[completed.ID]++
		}
	}
	for i := range state.Transcript {
		turn := &state.Transcript[i]
		for _, call := range turn.Calls {
			// One in the background has its result when it ends, which is before the run does.
			if turn.Completed && (!call.Detached || call.Phase == journal.PhaseDone) || state.Finished != nil {
				gomega.Expect(results).To(gomega.HaveKeyWithValue(call.Call.ID, 1), "results of call %s", call.Call.ID)
			}
		}
	}
	return records, state
}

// Events are the payloads of one type in a journal.
func Events[P journal.Payload](records []journal.Record) []P {
	ginkgo.GinkgoHelper()
	var payloads []P
	for _, record := range records {
		var payload P
		if record.Event.Type == payload.Type() {
			gomega.Expect(json.Unmarshal(record.Event.Data, &payload)).To(gomega.Succeed())
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// dump is every run of the namespace with its journal, and the end of the operator's log.
func (w *World) dump(ctx context.Context) string {
	var text strings.Builder
	list := &v1alpha1.AgentRunList{}
	if err := w.on.Admin.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
		fmt.Fprintln(&text, err)
	}
	for i := range list.Items {
		run := &list.Items[i]
		shown, err := w.on.Kubectl(ctx, "get", "agentrun", run.Name, "--namespace", run.Namespace, "--output=yaml")
		if err != nil {
			shown = err.Error()
		}
		fmt.Fprintf(&text, "---\n%s", shown)
		_, records, err := store.New(w.on.Admin, nil).Load(ctx, run)
		for _, record := range records {
			fmt.Fprintf(&text, "%s %d %s %.400s\n", record.Event.Time.Format("15:04:05.000"), record.Event.Seq, record.Event.Type, record.Event.Data)
		}
		if err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	const tail = 8 << 10
	log, err := os.ReadFile(w.on.OperatorLog)
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	fmt.Fprintf(&text, "--- the operator's log ends with\n%s", log[max(0, len(log)-tail):])
	return text.String()
}
