package run

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/prompt"
)

// world is a stage on which everything around a run does what it likes: the model,
// the tools, people, administrators, the process and time.
type world struct {
	*stage
	rapid *rapid.T
	// rules are the policies that administrators switch between.
	rules   []*policy.Set
	started *journal.RunStarted
	ids     int
	ledger  *ledger
	status  v1alpha1.AgentRunStatus
	// busy counts the steps since the run last waited.
	busy int
}

func newWorld(t *rapid.T) *world {
	w := &world{rapid: t, started: anyRun(t), stage: newStage(t, nil)}
	for range 1 + dice(t, "policies", 3) {
		w.rules = append(w.rules, compiled(t, anySpec(t)))
	}
	w.facts.Policies = w.rules[0]
	w.ledger = newLedger(w)
	w.committed = w.ledger.note
	return w
}

func (w *world) freshID() string {
	w.ids++
	return fmt.Sprintf("c%d", w.ids)
}

// step asks for one step, checks it, and acts on it. Sometimes the process dies on the
// way, so that only the beginning of what belongs together is committed.
func (w *world) step() Step {
	facts := w.look()
	step := Next(facts)
	if again := Next(facts); !reflect.DeepEqual(step, again) {
		w.t.Fatalf("Next is not deterministic: %s", cmp.Diff(step, again))
	}
	w.checkStep(facts, step)
	if len(step.Events) > 0 && chance(w.rapid, "dies", 40) {
		for _, entry := range step.Events[:dice(w.rapid, "committed", len(step.Events)+1)] {
			w.add(entry)
		}
		w.die()
		return Step{Kind: Commit}
	}
	if step.Kind == Send {
		w.ledger.send(facts, step)
	}
	if step.Kind == AskModel && facts.State.Owner == w.worker() {
		w.ledger.ask(facts, step)
	}
	w.take(step)
	w.checkState(step)
	return step
}

// die restarts the process and checks that the journal alone gives the same state.
func (w *world) die() {
	before := w.state()
	w.ledger.lose()
	w.restart()
	if diff := cmp.Diff(before, w.state()); diff != "" {
		w.t.Fatalf("the fold differs from the state that grew with the events:\n%s", diff)
	}
}

func waits(step Step) bool {
	switch step.Kind {
	case Commit, Send, AskModel, Poll, Recall:
		return false
	default:
		return true
	}
}

// play lets anything happen, for so many moves.
func (w *world) play(moves int) {
	for range moves {
		step := w.step()
		if step.Kind == Done {
			w.afterwards()
			return
		}
		if waits(step) {
			w.move(step)
		} else if chance(w.rapid, "meddles", 12) {
			w.meddle()
		}
	}
}

// move is what happens while the run waits.
func (w *world) move(step Step) {
	switch step.Kind {
	case Resolve:
		w.facts.Configuration = pick(w.rapid, "configuration",
			&Configuration{Started: w.started}, &Configuration{Started: w.started}, &Configuration{Started: w.started},
			&Configuration{NotReady: "Model m does not exist"})
		if chance(w.rapid, "invalid", 20) {
			w.facts.Configuration = &Configuration{Invalid: "two policies declare server s"}
		}
		return
	case Stop:
		w.landOne()
		return
	default:
	}
	switch dice(w.rapid, "move", 20) {
	case 0:
		w.wait(step)
	case 1:
		w.human()
	case 2, 3:
		w.meddle()
	default:
		w.oblige(step)
	}
}

// oblige lets happen what the run waits for.
func (w *world) oblige(step Step) {
	switch {
	case w.asked != nil || len(w.calls) > 0 || len(w.inquiries) > 0:
		w.landOne()
	case step.Kind == Await:
		w.wait(step)
	default:
		w.help(step)
	}
}

// landOne ends one thing that is under way.
func (w *world) landOne() {
	w.facts.Now = w.facts.Now.Add(pick(w.rapid, "duration", 0, time.Millisecond, 3*time.Second, 40*time.Second))
	if w.asked != nil {
		if chance(w.rapid, "modelFails", 10) {
			w.fail(anyFailure(w.rapid))
			return
		}
		reply := w.reply()
		w.facts.Throttled = map[string]time.Time{}
		for _, call := range reply.Decision.Calls {
			if chance(w.rapid, "throttled", 8) {
				w.facts.Throttled[call.ID] = w.facts.Now.Add(pick(w.rapid, "throttledFor", time.Second, time.Hour))
			}
		}
		w.answer(reply)
		return
	}
	if ids := w.underWay(); len(ids) > 0 {
		id := ids[0]
		outcome := anyOutcome(w.rapid)
		switch dice(w.rapid, "goesOn", 10) {
		case 0, 1:
			outcome = goesOn
		case 2:
			outcome = pick(w.rapid, "asks", wantsInput(asksFor("k", marker, kSchema)), wantsInput(asksFor("k", marker, kSchema)), onlyLater)
			w.ledger.asks[id] = true
		default:
			w.ledger.end(id, outcome)
		}
		w.land(id, outcome)
		return
	}
	if ids := slices.Sorted(maps.Keys(w.inquiries)); len(ids) > 0 {
		id := ids[0]
		outcome := anyOutcome(w.rapid)
		switch {
		case chance(w.rapid, "stillGoesOn", 2):
			outcome = goesOn
			if chance(w.rapid, "taskAsks", 4) {
				outcome = taskWants(asksFor(pick(w.rapid, "key", "k", "l"), marker, kSchema))
			}
		case !outcome.Retryable:
			w.ledger.end(id, outcome)
		}
		w.learn(id, outcome)
	}
}

// reply is anything, or what makes sense to a model that remembers: what it was given
// leave for, or the same as before.
func (w *world) reply() model.Reply {
	reply, s := anyReply(w.rapid, w.freshID), w.state()
	if len(s.Intents) > 0 && !chance(w.rapid, "forgets", 4) {
		reply.Decision = model.Decision{Kind: model.KindCalls}
		reply.Decision.Calls = w.announced()
		return reply
	}
	if handles := append(s.Handles(), s.Untold()...); len(handles) > 0 && reply.Decision.Kind == model.KindCalls && chance(w.rapid, "checks", 3) {
		about := pick(w.rapid, "handle", handles...).Call.ID
		look := model.Call{ID: w.freshID(), Alias: prompt.CheckCall, Arguments: fmt.Sprintf(`{"call":%q,"wait":%t}`, about, chance(w.rapid, "waits", 2))}
		if chance(w.rapid, "checksAlone", 2) {
			reply.Decision.Calls = nil
		}
		reply.Decision.Calls = append(reply.Decision.Calls, look)
		return reply
	}
	if reply.Decision.Kind != model.KindCalls || len(s.Transcript) == 0 {
		return reply
	}
	if chance(w.rapid, "again", 5) {
		reply.Decision.Calls = nil
		for _, call := range s.Transcript[len(s.Transcript)-1].Decision.Calls {
			reply.Decision.Calls = append(reply.Decision.Calls, model.Call{ID: w.freshID(), Alias: call.Alias, Arguments: call.Arguments})
		}
	}
	return reply
}

// announced are the calls that the newest request for approval named, as it named them.
func (w *world) announced() []model.Call {
	var calls []model.Call
	for i := range w.state().Transcript {
		if intents := w.state().Transcript[i].Decision.Intents; len(intents) > 0 {
			calls = nil
			for _, intent := range intents {
				_, alias, _ := strings.Cut(intent.Tool, ".")
				calls = append(calls, model.Call{ID: w.freshID(), Alias: alias, Arguments: intent.Arguments})
			}
		}
	}
	return calls
}

// underWay lists the calls in the air, rotated at random.
func (w *world) underWay() []string {
	var ids []string
	if turn := w.state().OpenTurn(); turn != nil {
		for i := range turn.Calls {
			if _, flies := w.calls[turn.Calls[i].Call.ID]; flies {
				ids = append(ids, turn.Calls[i].Call.ID)
			}
		}
	}
	if len(ids) > 1 {
		k := dice(w.rapid, "lands", len(ids))
		ids = append(ids[k:], ids[:k]...)
	}
	return ids
}

// wait lets time pass: a moment, until the run wants to be looked at, or far beyond.
func (w *world) wait(step Step) {
	now := w.facts.Now
	switch dice(w.rapid, "wait", 5) {
	case 0:
		w.facts.Now = now.Add(pick(w.rapid, "passes", 10*time.Millisecond, time.Second, 30*time.Second, 11*time.Minute, 2*time.Hour))
	default:
		if step.Until.After(now) {
			w.facts.Now = step.Until
		}
	}
}

// meddle changes something that the run does not expect.
func (w *world) meddle() {
	switch dice(w.rapid, "meddle", 12) {
	case 0:
		w.facts.Policies, w.facts.PoliciesProblem = nil, "ToolPolicy tools does not exist"
	case 1, 2:
		w.facts.Policies = pick(w.rapid, "policy", w.rules...)
	case 3:
		w.facts.Desired = pick(w.rapid, "desired", Active, Active, Suspended)
		if chance(w.rapid, "cancels", 6) {
			w.facts.Desired = Cancelled
		}
	case 4:
		if w.state().Run == nil {
			w.facts.Configuration = nil
		}
	case 5:
		w.die()
	default:
		w.human()
	}
}

// kSchema is that of an answer with one text.
const kSchema = `{"type":"object","properties":{"k":{"type":"string"}}}`

// grantedInput is the approval of some call that is about to go on with an answer.
func (w *world) grantedInput() string {
	turn := w.state().OpenTurn()
	for i := 0; turn != nil && i < len(turn.Calls); i++ {
		if call := &turn.Calls[i]; call.Asks() && call.Input().Granted != nil {
			return call.Input().Granted.Digest
		}
	}
	return ""
}

// human sets verdicts, right and wrong ones.
func (w *world) human() {
	s, v := w.state(), &w.facts.Verdicts
	by := pick(w.rapid, "by", "ann", "ann", "ann", "")
	switch dice(w.rapid, "verdict", 7) {
	case 0, 1:
		digest := "sha256:" + marker
		if s.Approval != nil && !chance(w.rapid, "wrongDigest", 4) {
			digest = s.Approval.Digest
		}
		v.Approve, v.ApproveBy = digest, by
	case 2:
		v.Deny, v.DenyBy, v.DenyReason = "", by, marker
		if a := s.Approval; a != nil {
			v.Deny = a.Digest
		} else if granted := w.grantedInput(); granted != "" {
			v.Deny = granted
		} else if turn := s.OpenTurn(); turn != nil && turn.Granted != nil {
			v.Deny = turn.Granted.Digest
		}
	case 3, 4:
		id := "q-0-wrong"
		if s.Question != nil && !chance(w.rapid, "wrongQuestion", 4) {
			id = s.Question.ID
		}
		v.Answers, v.AnswerBy = map[string]string{id: pick(w.rapid, "answer", marker, `{"k":"`+marker+`"}`, `{"k":5}`, decline)}, by
	case 5:
		v.Settlements, v.SettleBy = map[string]string{"pawl-wrong": "committed"}, by
		for _, unknown := range s.Unknown {
			v.Settlements[unknown.EffectKey] = pick(w.rapid, "settlement", "committed", "rejected", "perhaps")
		}
	default:
		*v = Verdicts{AnswersBroken: true, SettlementsBroken: true}
	}
}
