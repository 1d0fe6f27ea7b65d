package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// ledger is what the outside saw of a run: what was sent, and what people allowed. It
// is kept apart from the journal, to be compared with it.
type ledger struct {
	w *world
	// first says when a call was first announced, announced how often, sent how often.
	first     map[string]time.Time
	announced map[string]int
	sent      map[string]int
	// doubtful holds the calls that may have taken effect without anybody knowing.
	doubtful map[string]bool
	finals   map[string]int
	// settlement holds what people said of unknown effects.
	settlement map[string]string
	request    *model.Request
	// context is how the conversation of request was shortened.
	context journal.Shortened
	// over is true once a denial ends the run, asked holds the turns that asked people.
	over  bool
	asked map[string]bool
	// asks holds the calls whose service waits for input, by its own word.
	asks  map[string]bool
	epoch int64
}

func newLedger(w *world) *ledger {
	return &ledger{w: w, first: map[string]time.Time{}, announced: map[string]int{}, sent: map[string]int{}, doubtful: map[string]bool{}, finals: map[string]int{}, asked: map[string]bool{}, asks: map[string]bool{}, settlement: map[string]string{}}
}

// note sees each event once it is committed.
func (l *ledger) note(record journal.Record) {
	event, w := record.Event, l.w
	if event.Epoch < l.epoch {
		w.t.Fatalf("epoch %d follows %d", event.Epoch, l.epoch)
	}
	l.epoch = event.Epoch
	switch event.Type {
	case journal.TypeDecisionMade:
		if l.over {
			w.t.Fatalf("the model is asked again after a denial that ends the run")
		}
	case journal.TypeCallDispatched:
		for _, dispatch := range decoded[journal.CallDispatched](w.t, record).Calls {
			if l.announced[dispatch.ID]++; l.announced[dispatch.ID] == 1 {
				l.first[dispatch.ID] = event.Time
			}
		}
	case journal.TypeCallCompleted:
		l.complete(decoded[journal.CallCompleted](w.t, record))
	default:
		l.people(record)
	}
}

// people checks what the journal says of people.
func (l *ledger) people(record journal.Record) {
	event, w, v := record.Event, l.w, l.w.facts.Verdicts
	//nolint:exhaustive // the others say nothing about people
	switch event.Type {
	case journal.TypeApprovalDenied:
		l.over = l.over || decoded[journal.ApprovalDenied](w.t, record).End
	case journal.TypeQuestionAsked:
		asked := decoded[journal.QuestionAsked](w.t, record).CallID
		if call := w.call(asked); len(call.Inputs) > 0 {
			asked += fmt.Sprint(len(call.Inputs))
		}
		if l.asked[asked] {
			w.t.Fatalf("the question of %s is put twice", asked)
		}
		l.asked[asked] = true
	case journal.TypeApprovalGranted:
		if payload := decoded[journal.ApprovalGranted](w.t, record); v.Approve != payload.Digest || v.ApproveBy != event.By || event.By == "" {
			w.t.Fatalf("%q approved %q, but the journal says %q, %q", v.ApproveBy, v.Approve, event.By, payload.Digest)
		}
	case journal.TypeEffectReconciled:
		payload := decoded[journal.EffectReconciled](w.t, record)
		if v.Settlements[payload.EffectKey] != payload.Effect || v.SettleBy != event.By {
			w.t.Fatalf("nobody settled %s as %s", payload.EffectKey, payload.Effect)
		}
		delete(l.doubtful, payload.ID)
		l.settlement[payload.ID] = payload.Effect
	}
}

// complete checks the results that calls get.
func (l *ledger) complete(payload journal.CallCompleted) {
	if !payload.Final {
		return
	}
	if l.finals[payload.ID]++; l.finals[payload.ID] > 1 {
		l.w.t.Fatalf("call %s has two results", payload.ID)
	}
	call := l.w.call(payload.ID)
	if call.Attempt == 0 || call.Call.Effect == journal.ReadOnly {
		return
	}
	// Only the service itself can say of a call that was in doubt that nothing happened.
	if l.doubtful[payload.ID] && payload.Effect == journal.EffectRejected {
		l.w.t.Fatalf("call %s (%s) may have taken effect, but its result is %s, %s", payload.ID, call.Call.Effect, payload.Class, payload.Effect)
	}
	if said := l.settlement[payload.ID]; said != "" && said != payload.Effect {
		l.w.t.Fatalf("a person settled call %s as %s, but its result says %s", payload.ID, said, payload.Effect)
	}
	if payload.Effect == "" {
		l.w.t.Fatalf("call %s was sent, and its result says nothing of its effect", payload.ID)
	}
}

func decoded[P any](t tb, record journal.Record) P {
	var payload P
	if err := json.Unmarshal(record.Event.Data, &payload); err != nil {
		t.Fatalf("decoding %s: %v", record.Event.Type, err)
	}
	return payload
}

// end sees the outcome that an adapter reports.
func (l *ledger) end(id string, outcome tool.Outcome) {
	known := outcome.Class == tool.ClassOK || outcome.Effect == tool.EffectCommitted || outcome.Effect == tool.EffectRejected
	if outcome.Class == tool.ClassUnknown {
		known = false
	}
	if !known {
		l.doubtful[id] = true
	}
	if outcome.Class == tool.ClassOK || outcome.Effect == tool.EffectCommitted && outcome.Class != tool.ClassUnknown {
		delete(l.doubtful, id)
	}
}

// lose sees the process die with what it had in the air.
func (l *ledger) lose() {
	for id := range l.w.calls {
		l.doubtful[id] = true
	}
}

// ask checks a request to the model.
func (l *ledger) ask(f Facts, step Step) {
	t, s, limits := l.w.t, f.State, f.State.Run.Limits
	request := step.Request
	if err := strict(request.Messages); err != nil {
		t.Fatalf("a strict provider refuses the request: %v\n%+v", err, request.Messages)
	}
	l.continues(f, step)
	l.affordable(s, request)
	if s.Turns >= limits.MaxTurns || request.Decision != int(s.Turns)+1 {
		t.Fatalf("decision %d is asked for after %d of %d turns", request.Decision, s.Turns, limits.MaxTurns)
	}
	if most := s.Usage.Total() + prompt.EstimateTokens(request) + int64(request.MaxOutputTokens); s.Usage.Total() < 0 || most > limits.MaxTokens || request.MaxOutputTokens < 1 {
		t.Fatalf("a request that may use %d tokens in all, of %d", most, limits.MaxTokens)
	}
	l.working(f)
	for i := range s.Transcript {
		l.settled(&s.Transcript[i])
	}
}

// continues checks that a conversation only grows, unless it was shortened.
func (l *ledger) continues(f Facts, step Step) {
	t, s, request := l.w.t, f.State, step.Request
	if c := s.Context; l.request != nil && c == l.context && step.Through == 0 {
		before := *l.request
		if len(before.Messages) > len(request.Messages) || before.System != request.System || !cmp.Equal(before.Tools, request.Tools) ||
			!cmp.Equal(before.Messages, request.Messages[:len(before.Messages)]) {
			t.Fatalf("the request does not continue the one before:\n%s", cmp.Diff(before, request))
		}
	}
	if step.Through == 0 {
		l.request, l.context = &request, s.Context
	}
}

// affordable checks a request against the context and the cost that it may have.
func (l *ledger) affordable(s *journal.State, request model.Request) {
	t := l.w.t
	if limit := contextLimit(s); limit > 0 && inputTokens(s, request) > limit {
		t.Fatalf("a request of %d tokens, of %d", inputTokens(s, request), limit)
	}
	if prices, limit := s.Run.Model.Prices, s.Run.Limits.MaxCost; prices != nil && limit != "" {
		if most := prices.Cost(s.Usage.Add(journal.Usage{InputTokens: inputTokens(s, request), OutputTokens: int64(request.MaxOutputTokens)})); most > journal.ParseCost(limit) {
			t.Fatalf("a request that may cost %s in all, of %s", most, limit)
		}
	}
}

// settled checks that each call of a turn has its one result, in order.
func (l *ledger) settled(turn *journal.Turn) {
	if len(turn.Calls) != len(turn.Decision.Calls) {
		l.w.t.Fatalf("turn %d has %d calls and %d states of calls", turn.Number, len(turn.Decision.Calls), len(turn.Calls))
	}
	for i := range turn.Calls {
		call := &turn.Calls[i]
		if call.Detached && call.Phase != journal.PhaseDone && l.w.state().Finished == nil && l.finals[call.Call.ID] == 0 {
			continue // that it runs is its result in its turn
		}
		if call.Call.ID != turn.Decision.Calls[i].ID || call.Phase != journal.PhaseDone || call.Last == nil || !call.Last.Final || l.finals[call.Call.ID] != 1 {
			l.w.t.Fatalf("call %s of turn %d does not have its one result: %+v", call.Call.ID, turn.Number, call)
		}
	}
}

// working checks that nothing forbids the run to act.
func (l *ledger) working(f Facts) {
	s := f.State
	limits := s.Run.Limits
	asked := s.Approval != nil && s.ContinuedCall() == nil || s.Question != nil && s.AskingCall() == nil
	if f.Desired != Active || s.Suspended || asked || s.Finished != nil || f.Policies == nil && s.OpenTurn() == nil {
		l.w.t.Fatalf("the run acts although it has to wait: %s, %v, %v, %v", f.Desired, s.Suspended, s.Approval, s.Question)
	}
	if !f.Now.Before(s.StartTime.Add(seconds(limits.DeadlineSeconds))) || f.Active >= seconds(limits.ActiveDeadlineSeconds) {
		l.w.t.Fatalf("the run acts past its deadline")
	}
}

// send checks calls that are about to leave.
func (l *ledger) send(f Facts, step Step) {
	l.working(f)
	turn := f.State.OpenTurn()
	if !turn.Dispatched {
		l.allowed(f, turn)
	}
	for i, sending := range step.Calls {
		l.sendOne(f, turn, sending)
		for _, other := range step.Calls[:i] {
			l.apart(sending.Call, other.Call)
		}
		for _, other := range l.w.calls {
			l.apart(sending.Call, other.Call)
		}
		for _, handle := range f.State.Handles() {
			if key := sending.Call.ConflictKey; key != "" && key == handle.Call.ConflictKey {
				l.w.t.Fatalf("call %s runs while %s goes on, which has the same conflict key", sending.Call.ID, handle.Call.ID)
			}
		}
	}
	if limit := f.State.Run.Limits.MaxToolCalls; int32(len(l.sent)) > limit {
		l.w.t.Fatalf("%d calls are sent, of %d", len(l.sent), limit)
	}
}

func (l *ledger) sendOne(f Facts, turn *journal.Turn, sending Sending) {
	call, t := sending.Call, l.w.t
	state := l.w.call(call.ID)
	if !cmp.Equal(state.Call, call) {
		t.Fatalf("what is sent is not what was decided:\n%s", cmp.Diff(state.Call, call))
	}
	if turn.Decision.Kind != journal.DecisionToolCalls || call.Invalid != "" || call.Verdict == nil || call.Verdict.Action == journal.ActionDeny || call.Tool == "" {
		t.Fatalf("a call that may not run is sent: %+v", call)
	}
	if state.Phase == journal.PhaseInput {
		l.continued(f, turn, sending, state)
		return
	}
	if _, flies := l.w.calls[call.ID]; flies || l.finals[call.ID] > 0 || int(sending.Attempt) != l.announced[call.ID]+1 {
		t.Fatalf("attempt %d at call %s follows %d", sending.Attempt, call.ID, l.announced[call.ID])
	}
	if first, again := l.first[call.ID]; again {
		lifetime := seconds(call.KeyLifetimeSeconds) - 5*time.Minute
		switch {
		case call.Effect == journal.ReadOnly:
		case call.Effect != journal.Idempotent:
			t.Fatalf("a %s call is sent again", call.Effect)
		case !f.Now.Before(first.Add(lifetime)):
			t.Fatalf("an Idempotent call is sent again after %s, its key lives for %s", f.Now.Sub(first), lifetime)
		}
	}
	l.sent[call.EffectKey]++
}

// continued checks a call that is sent again with what its service asked for: by the
// service's own word it did nothing, people answered, and the rules allow it.
func (l *ledger) continued(f Facts, turn *journal.Turn, sending Sending, state *journal.CallState) {
	t, call, in := l.w.t, sending.Call, state.Input()
	if !l.asks[call.ID] || l.finals[call.ID] > 0 || int(sending.Attempt) != l.announced[call.ID] || sending.Continues == nil {
		t.Fatalf("call %s does not wait for input, but is sent with some", call.ID)
	}
	delete(l.asks, call.ID)
	if len(in.Asked.Questions) > 0 && (in.Answer == nil || in.Answer.Declined || in.Answer.Expired || sending.Continues.Answers[0].Action != tool.ActionAccept) {
		t.Fatalf("call %s goes on without an answer: %+v", call.ID, in)
	}
	if lifetime := seconds(call.KeyLifetimeSeconds) - 5*time.Minute; call.Effect == journal.Idempotent && l.doubtful[call.ID] && !f.Now.Before(l.first[call.ID].Add(lifetime)) {
		t.Fatalf("an Idempotent call in doubt goes on, its key lives for %s", lifetime)
	}
	l.agreed(f, turn, call, in)
}

// agreed checks that the rules, and where they ask people too, let a call go on with its
// answer.
func (l *ledger) agreed(f Facts, turn *journal.Turn, call journal.Call, in *journal.CallInput) {
	t := l.w.t
	position := slices.IndexFunc(turn.Calls, func(c journal.CallState) bool { return c.Call.ID == call.ID })
	switch live := l.judge(f, call, position, len(turn.Calls)); {
	case live.Action == v1alpha1.ActionDeny:
		t.Fatalf("call %s goes on, but the rules deny it now", call.ID)
	case live.Action == v1alpha1.ActionAsk && in.Answer != nil && (in.Granted == nil || in.Gate != journal.GateGranted || !f.Now.Before(in.Granted.ExpiresAt)):
		t.Fatalf("call %s goes on without a valid approval: %+v", call.ID, in)
	}
}

// apart checks that two calls may be under way at the same time.
func (l *ledger) apart(a, b journal.Call) {
	if !a.Parallel || !b.Parallel || a.ConflictKey != "" && a.ConflictKey == b.ConflictKey {
		l.w.t.Fatalf("calls %s and %s run at the same time: %+v, %+v", a.ID, b.ID, a, b)
	}
}

// allowed checks a whole batch before its first call leaves, against the rules as they
// are now and what people said.
func (l *ledger) allowed(f Facts, turn *journal.Turn) {
	for i := range turn.Calls {
		call := turn.Calls[i].Call
		if turn.Calls[i].Phase != journal.PhasePrepared || call.Tool == prompt.CheckCall {
			continue
		}
		live := l.judge(f, call, i, len(turn.Calls))
		asks := live.Action == v1alpha1.ActionAsk || call.Verdict.Action == journal.ActionAsk
		switch {
		case live.Action != v1alpha1.ActionAllow && live.Action != v1alpha1.ActionAsk:
			l.w.t.Fatalf("call %s is about to be sent, but the rules deny it now", call.ID)
		case asks && call.Verdict.ApprovedBy == "":
			l.approved(f, turn, call, live)
		}
	}
}

func (l *ledger) judge(f Facts, call journal.Call, position, size int) policy.Verdict {
	arguments, err := strictjson.Object(ArgumentBytes(call.Arguments), strictjson.Limits{})
	if err != nil {
		l.w.t.Fatalf("the arguments of %s are not an object: %v", call.ID, err)
	}
	s := f.State
	return f.Policies.Evaluate(policy.Input{
		Tool: call.Tool, Arguments: arguments, Call: policy.Call{ID: call.ID, Position: position, BatchSize: size},
		Run: policy.Run{
			Namespace: s.Run.Namespace, Name: s.Run.Name, Turn: int(turnOf(s, call.ID)),
			Usage: v1alpha1.Usage{TotalTokens: s.Usage.Total()},
		},
	})
}

func turnOf(s *journal.State, id string) int32 {
	for i := range s.Transcript {
		for _, call := range s.Transcript[i].Calls {
			if call.Call.ID == id {
				return s.Transcript[i].Number
			}
		}
	}
	return 0
}

func (l *ledger) approved(f Facts, turn *journal.Turn, call journal.Call, live policy.Verdict) {
	granted := turn.Granted
	if turn.Gate != journal.GateGranted || granted == nil || granted.Intent || !f.Now.Before(granted.ExpiresAt) {
		l.w.t.Fatalf("call %s is about to be sent without a valid approval: %+v", call.ID, granted)
	}
	if f.Verdicts.Deny == granted.Digest && f.Verdicts.DenyBy != "" {
		l.w.t.Fatalf("call %s is about to be sent, but a person denied it meanwhile", call.ID)
	}
	for _, pending := range granted.Calls {
		if pending.ID != call.ID {
			continue
		}
		if pending.EffectKey != call.EffectKey || pending.ArgumentsDigest != strictjson.Digest([]byte(call.Arguments)) {
			l.w.t.Fatalf("call %s is not what was approved", call.ID)
		}
		if live.Action == v1alpha1.ActionAsk && pending.RuleDigest != live.RuleDigest {
			l.w.t.Fatalf("call %s was approved under another rule than asks now", call.ID)
		}
		return
	}
	l.w.t.Fatalf("call %s was not among what was approved", call.ID)
}
