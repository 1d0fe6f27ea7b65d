package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
)

// readJournal reads a run's journal, which verifies its chain, and folds it.
func readJournal(ctx context.Context, run *v1alpha1.AgentRun) ([]journal.Record, *journal.State, error) {
	_, records, err := store.New(env.Admin, nil).Load(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	state, err := journal.Fold(string(run.UID), records)
	return records, state, err
}

// journalOf is readJournal of a run whose journal has to be in order: every call has
// exactly one result once its turn is closed.
func journalOf(ctx context.Context, run *v1alpha1.AgentRun) ([]journal.Record, *journal.State) {
	GinkgoHelper()
	records, state, err := readJournal(ctx, run)
	Expect(err).NotTo(HaveOccurred())
	finals := map[string]int{}
	for _, completed := range events[journal.CallCompleted](records) {
		if completed.Final {
			finals[completed.ID]++
		}
	}
	for i := range state.Transcript {
		turn := &state.Transcript[i]
		for _, call := range turn.Calls {
			// One in the background has its result when it ends, which is before the run does.
			if turn.Completed && (!call.Detached || call.Phase == journal.PhaseDone) || state.Finished != nil {
				Expect(finals).To(HaveKeyWithValue(call.Call.ID, 1), "results of call %s", call.Call.ID)
			}
			delete(finals, call.Call.ID)
		}
	}
	Expect(finals).To(BeEmpty(), "results of calls that nobody proposed")
	return records, state
}

// events are the payloads of one type.
func events[P journal.Payload](records []journal.Record) []P {
	GinkgoHelper()
	var payloads []P
	for _, record := range records {
		var payload P
		if record.Event.Type == payload.Type() {
			Expect(json.Unmarshal(record.Event.Data, &payload)).To(Succeed())
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// by lists who is named by the events of one type.
func by(records []journal.Record, kind journal.Type) []string {
	var names []string
	for _, record := range records {
		if record.Event.Type == kind {
			names = append(names, record.Event.By)
		}
	}
	return names
}

// results are the results of a turn's calls, in call order.
func results(state *journal.State, turn int) []*journal.CallCompleted {
	GinkgoHelper()
	Expect(len(state.Transcript)).To(BeNumerically(">=", turn), "turns")
	var list []*journal.CallCompleted
	for i := range state.Transcript[turn-1].Calls {
		list = append(list, state.Transcript[turn-1].Calls[i].Last)
	}
	return list
}

// segmentsOf lists the ConfigMaps of a run's journal.
func segmentsOf(ctx context.Context, run *v1alpha1.AgentRun) []string {
	GinkgoHelper()
	var found corev1.ConfigMapList
	Expect(env.Admin.List(ctx, &found, client.InNamespace(run.Namespace), client.MatchingLabels{v1alpha1.LabelRunUID: string(run.UID)})).To(Succeed())
	var names []string
	for i := range found.Items {
		names = append(names, found.Items[i].Name)
	}
	return names
}

// journalText is a journal as text, for people who have to find out what went wrong.
func journalText(ctx context.Context, key client.ObjectKey) string {
	run := &v1alpha1.AgentRun{}
	if err := env.Admin.Get(ctx, key, run); err != nil {
		return ""
	}
	records, _, err := readJournal(ctx, run)
	var text strings.Builder
	const shown = 400
	for _, record := range records {
		data := record.Event.Data
		fmt.Fprintf(&text, "%d %s %s\n", record.Event.Seq, record.Event.Type, data[:min(len(data), shown)])
	}
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	return text.String()
}
