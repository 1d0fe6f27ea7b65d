package replicas

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/journal/store"
	"github.com/pawl-run/pawl/test/runs"
	toolserver "github.com/pawl-run/pawl/test/toolserver/tools"
)

// tally is what the journals of a world and the tool server's ledger say together.
type tally struct {
	runs    int
	reasons map[string]int
	// calls, requests and duplicates by effect class. A duplicate is a second request for
	// what may be sent once, or a second application of a key.
	calls, requests, duplicates map[string]int
	// lost are effects and results that no journal knows of.
	lost int
	// unknown counts outcomes that were unknown for a while, settled by whom.
	unknown int
	settled map[string]int
	notRun  int
	claims  int
	// takeovers are claims from an owner that did not let go, by that owner.
	takeovers map[string]int
	wrong     []string
}

func (t *tally) String() string {
	return fmt.Sprintf("%d runs %v; calls %v; requests %v; duplicates %v; lost %d; unknown %d, settled by %v; not run %d; claims %d, of them takeovers %d",
		t.runs, t.reasons, t.calls, t.requests, t.duplicates, t.lost, t.unknown, t.settled, t.notRun, t.claims, t.takeoverCount())
}

func (t *tally) takeoverCount() int {
	n := 0
	for _, times := range t.takeovers {
		n += times
	}
	return n
}

func (t *tally) duplicateCount() int {
	n := 0
	for _, times := range t.duplicates {
		n += times
	}
	return n
}

func (t *tally) object(format string, args ...any) {
	t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
}

// broken are the attempts at specs in which something was done twice or lost. A spec may be
// tried again where it was too slow; a promise that was broken once is broken, and fails the
// suite.
var broken []string

// expectSound reports the counts and checks that nothing was done twice or lost.
func (t *tally) expectSound(title string) {
	GinkgoHelper()
	AddReportEntry(title, t.String(), ReportEntryVisibilityAlways)
	if len(t.wrong) > 0 || t.duplicateCount() > 0 || t.lost > 0 {
		broken = append(broken, fmt.Sprintf("%s: %s: %v", CurrentSpecReport().FullText(), title, t.wrong[:min(len(t.wrong), 20)]))
	}
	Expect(t.wrong[:min(len(t.wrong), 20)]).To(BeEmpty())
	Expect(t.duplicateCount()).To(BeZero(), "duplicates")
	Expect(t.lost).To(BeZero(), "lost results")
}

// history is a run with its journal.
type history struct {
	run     v1alpha1.AgentRun
	records []journal.Record
	state   *journal.State
}

// histories reads every journal of the world.
func (w *world) histories(ctx context.Context) []history {
	GinkgoHelper()
	list := w.list(ctx)
	found := make([]history, len(list))
	var wait sync.WaitGroup
	limit := make(chan struct{}, 8)
	for i := range list {
		wait.Add(1)
		go func() {
			defer wait.Done()
			defer GinkgoRecover()
			limit <- struct{}{}
			defer func() { <-limit }()
			_, records, err := store.New(env.Admin, nil).Load(ctx, &list[i])
			Expect(err).NotTo(HaveOccurred())
			state, err := journal.Fold(string(list[i].UID), records)
			Expect(err).NotTo(HaveOccurred())
			found[i] = history{list[i], records, state}
		}()
	}
	wait.Wait()
	return found
}

// check compares every journal of the world with the tool server's ledger.
func (w *world) check(ctx context.Context) *tally {
	GinkgoHelper()
	t := &tally{
		reasons: map[string]int{}, calls: map[string]int{}, requests: map[string]int{}, duplicates: map[string]int{},
		settled: map[string]int{}, takeovers: map[string]int{},
	}
	byRun := map[string][]toolserver.Entry{}
	for _, entry := range env.Tools.Ledger() {
		byRun[entry.RunUID] = append(byRun[entry.RunUID], entry)
	}
	for _, h := range w.histories(ctx) {
		t.runs++
		t.reasons[runs.Succeeded(&h.run).Reason]++
		if !atRest(&h.run) {
			t.object("%s neither ended nor waits under a name: %s", h.run.Name, runs.Succeeded(&h.run).Reason)
		}
		t.addJournal(h)
		t.addCalls(h, byRun[string(h.run.UID)])
	}
	return t
}

// addJournal checks what the journal says by itself.
func (t *tally) addJournal(h history) {
	ended := t.addOrder(h)
	for _, claimed := range runs.Events[journal.Claimed](h.records) {
		t.claims++
		if claimed.Previous != "" {
			t.takeovers[claimed.Previous]++
		}
	}
	for _, settled := range runs.Events[journal.EffectReconciled](h.records) {
		t.settled[cmp.Or(string(settled.Source), "Person")]++
	}
	t.addResults(h, ended)
}

// addOrder checks epochs and the end, and says whether the run has ended.
func (t *tally) addOrder(h history) (ended bool) {
	epoch := int64(0)
	for _, record := range h.records {
		if record.Event.Epoch < epoch {
			t.object("%s: the epoch goes back at event %d", h.run.Name, record.Event.Seq)
		}
		epoch = record.Event.Epoch
		if ended && record.Event.Type != journal.TypeEffectReconciled {
			t.object("%s: %s follows the end", h.run.Name, record.Event.Type)
		}
		ended = ended || record.Event.Type == journal.TypeFinished
	}
	return ended
}

// addResults checks that every call has one result.
func (t *tally) addResults(h history, ended bool) {
	results := map[string]int{}
	for _, completed := range runs.Events[journal.CallCompleted](h.records) {
		if completed.Final {
			results[completed.ID]++
		} else if completed.Effect == journal.EffectUnknown && !completed.Retryable {
			t.unknown++
		}
	}
	for i := range h.state.Transcript {
		turn := &h.state.Transcript[i]
		for _, call := range turn.Calls {
			if (turn.Completed || ended) && results[call.Call.ID] != 1 {
				t.object("%s: call %s has %d results", h.run.Name, call.Call.ID, results[call.Call.ID])
			}
		}
	}
}

// addCalls compares the calls with what the tool server was asked.
func (t *tally) addCalls(h history, ledger []toolserver.Entry) {
	byKey := map[string][]toolserver.Entry{}
	for _, entry := range ledger {
		byKey[entry.Key] = append(byKey[entry.Key], entry)
	}
	for i := range h.state.Transcript {
		for _, call := range h.state.Transcript[i].Calls {
			requests := byKey[call.Call.EffectKey]
			delete(byKey, call.Call.EffectKey)
			t.calls[call.Call.Effect]++
			t.requests[call.Call.Effect] += len(requests)
			t.addCall(fmt.Sprintf("%s, turn %d, %s", h.run.Name, i+1, call.Call.Tool), call, requests)
		}
	}
	if len(byKey) > 0 {
		t.lost += len(byKey)
		t.object("%s: requests that no call accounts for: %v", h.run.Name, slices.Collect(maps.Keys(byKey)))
	}
}

func (t *tally) addCall(what string, call journal.CallState, requests []toolserver.Entry) {
	applied, done := 0, call.Phase == journal.PhaseDone
	for _, entry := range requests {
		if entry.Applied {
			applied++
		}
		if entry.Attempt > int64(call.Attempt) {
			t.object("%s: attempt %d was sent, the journal knows of %d", what, entry.Attempt, call.Attempt)
		}
	}
	if done && call.Last.Class == "not_run" {
		t.notRun++
		if len(requests) > 0 {
			t.object("%s: is said not to have run, and arrived", what)
		}
	}
	t.addEffect(what, call, len(requests), applied)
}

// addEffect compares what the journal says of a call's effect with what was applied.
func (t *tally) addEffect(what string, call journal.CallState, requests, applied int) {
	done := call.Phase == journal.PhaseDone
	switch call.Call.Effect {
	case journal.ReadOnly:
		if done && call.Last.Class == "ok" && requests == 0 {
			t.object("%s: has a result that nobody gave", what)
		}
		return
	case journal.Idempotent:
		t.duplicates[call.Call.Effect] += max(applied-1, 0)
	default:
		t.duplicates[call.Call.Effect] += max(requests-1, 0)
		if call.Attempt > 1 {
			t.object("%s: %d attempts", what, call.Attempt)
		}
	}
	switch {
	case done && call.Last.Effect == journal.EffectCommitted && applied == 0:
		t.object("%s: is said to have taken effect, and did not", what)
	case done && call.Last.Effect == journal.EffectRejected && applied > 0:
		t.lost++
		t.object("%s: took effect, and is said not to have (%s)", what, call.Last.Class)
	}
}

// senders tells who sent a request, by the epoch that it was sent under.
func (w *world) senders(ctx context.Context) func(toolserver.Entry) string {
	GinkgoHelper()
	type claim struct {
		uid   string
		epoch int64
	}
	claims := map[claim]string{}
	for _, h := range w.histories(ctx) {
		for _, record := range h.records {
			var claimed journal.Claimed
			if record.Event.Type == journal.TypeClaimed && json.Unmarshal(record.Event.Data, &claimed) == nil {
				claims[claim{string(h.run.UID), record.Event.Epoch}] = claimed.Worker
			}
		}
	}
	return func(entry toolserver.Entry) string { return claims[claim{entry.RunUID, entry.Epoch}] }
}

// owners lists who owns each run now, by name.
func owners(histories []history) map[string]string {
	found := map[string]string{}
	for _, h := range histories {
		found[h.run.Name] = h.state.Owner
	}
	return found
}

// workerName is the name in a worker's identity.
func workerName(identity string) string {
	if i := strings.LastIndex(identity, "-"); i > 0 {
		return identity[:i]
	}
	return identity
}
