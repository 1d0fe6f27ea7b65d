package journal

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pawl-run/pawl/internal/strictjson"
)

var beginning = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// entry is a payload with what goes with it.
type entry struct {
	payload Payload
	by      string
	part    []byte
}

// journalOf writes payloads, one event each, a second apart.
func journalOf(t testing.TB, entries ...entry) *Draft {
	t.Helper()
	draft := &Draft{State: NewState(testUID)}
	for i, e := range entries {
		meta := Meta{Time: beginning.Add(time.Duration(i) * time.Second), By: e.by, Part: e.part, ActiveMillis: int64(i) * 1000}
		if err := draft.Add(e.payload, meta); err != nil {
			t.Fatalf("event %d: %v", i+1, err)
		}
	}
	return draft
}

func say(payload Payload) entry { return entry{payload: payload} }

func ann(payload Payload) entry { return entry{payload: payload, by: "ann"} }

// Payloads of a run with one call in each of several positions.
var (
	claimed = say(Claimed{Worker: "a"})
	started = say(RunStarted{Namespace: "n", Name: "r", Prompt: "p"})
	allowed = &Verdict{Action: ActionAllow}
	asked   = &Verdict{Action: ActionAsk}
	denied  = &Verdict{Action: ActionDeny}
)

func callOf(id, effect string, verdict *Verdict) Call {
	return Call{ID: id, Tool: "s." + id, EffectKey: "key-" + id, PlanDigest: "plan-" + id, Effect: effect, Verdict: verdict}
}

func proposed(calls ...Call) entry {
	return say(DecisionMade{Kind: DecisionToolCalls, Calls: calls, Usage: Usage{InputTokens: 10, OutputTokens: 5}})
}

func dispatched(attempt int32, ids ...string) entry {
	var p CallDispatched
	for _, id := range ids {
		p.Calls = append(p.Calls, Dispatch{ID: id, Attempt: attempt, Deadline: beginning.Add(time.Hour)})
	}
	return say(p)
}

func ok(id string, attempt int32) entry {
	return say(CallCompleted{ID: id, Attempt: attempt, Final: true, Class: "ok", Effect: EffectCommitted, Value: json.RawMessage(`1`)})
}

func unknown() entry {
	return say(CallCompleted{ID: "a", Attempt: 1, Class: "unknown", Effect: EffectUnknown})
}

func requested(digest string) entry {
	return say(ApprovalRequested{Digest: digest, ExpiresAt: beginning})
}

func begun(more ...entry) []entry { return append([]entry{claimed, started}, more...) }

// What can't follow is refused, with an error that says why, and changes nothing.
func TestRefusals(t *testing.T) {
	read, acts, asks := callOf("r", ReadOnly, allowed), callOf("a", NonIdempotent, allowed), callOf("q", NonIdempotent, asked)
	open := begun(proposed(read, acts))
	gated := begun(proposed(read, asks))
	sent := append(open[:3:3], dispatched(1, "a"))
	question := begun(say(DecisionMade{Kind: DecisionQuestion, Calls: []Call{{ID: "q", Tool: "ask"}}}))
	retry := say(CallCompleted{ID: "r", Attempt: 1, Class: "transport", Retryable: true})
	cases := map[string]struct {
		before []entry
		then   entry
		want   string
	}{
		"nobody owns the run":                 {nil, started, "nobody owns"},
		"a claim without a worker":            {nil, say(Claimed{}), "no worker"},
		"a claim from another owner":          {begun(), say(Claimed{Worker: "b", Previous: "c"}), "the owner is"},
		"a release by another":                {begun(), say(Released{Worker: "b"}), "the owner is"},
		"a second start":                      {begun(), started, "started before"},
		"a decision before the start":         {[]entry{claimed}, proposed(read), "no decision is due"},
		"a decision in an open turn":          {open, proposed(read), "no decision is due"},
		"a failure in an open turn":           {open, say(ModelFailed{}), "no decision is due"},
		"a decision of no kind":               {begun(), say(DecisionMade{}), "not known"},
		"a batch without calls":               {begun(), proposed(), "no calls"},
		"an answer with calls":                {begun(), say(DecisionMade{Kind: DecisionFinal, Calls: []Call{read}}), "has calls"},
		"a question of two calls":             {begun(), say(DecisionMade{Kind: DecisionQuestion, Calls: []Call{read, acts}}), "2 calls"},
		"a call that nobody judged":           {begun(), proposed(callOf("x", ReadOnly, nil)), "neither invalid nor judged"},
		"a valid call of an invalid batch":    {begun(), say(DecisionMade{Kind: DecisionInvalid, Calls: []Call{read}}), "neither invalid nor judged"},
		"an id twice":                         {begun(), proposed(read, read), "used before"},
		"an empty id":                         {begun(), proposed(Call{Verdict: allowed}), "empty"},
		"an id of an earlier turn":            {append(open[:3:3], ok("r", 0), ok("a", 0), say(TurnCompleted{})), proposed(read), "used before"},
		"an approval that was not given":      {begun(), proposed(Call{ID: "x", Verdict: &Verdict{Action: ActionAsk, ApprovedBy: "d"}}), "not given"},
		"a part without a digest":             {begun(), entry{payload: DecisionMade{Kind: DecisionFinal}, part: []byte(`{}`)}, "digest"},
		"a digest without a part":             {begun(), say(DecisionMade{Kind: DecisionFinal, Part: "sha256:0"}), "digest"},
		"a part of another event":             {begun(), entry{payload: Suspended{}, part: []byte(`{}`)}, "only decisions have"},
		"sent without a turn":                 {begun(), dispatched(1, "a"), "no call"},
		"nothing sent":                        {open, dispatched(1), "no call"},
		"sent, and unknown":                   {open, dispatched(1, "x"), "not part"},
		"sent twice in one event":             {open, dispatched(1, "r", "r"), "named twice"},
		"sent while under way":                {sent, dispatched(2, "a"), "is Dispatched"},
		"sent again, NonIdempotent":           {append(sent[:4:4], unknown()), dispatched(2, "a"), "is Unknown"},
		"an attempt left out":                 {open, dispatched(2, "a"), "attempt 2 follows 0"},
		"sent, and denied":                    {begun(proposed(callOf("d", ReadOnly, denied), read)), dispatched(1, "d"), "was denied"},
		"sent, and invalid":                   {begun(proposed(Call{ID: "i", Invalid: "no"}, read)), dispatched(1, "i"), "not valid"},
		"sent without approval":               {gated, dispatched(1, "q"), "no approval"},
		"sent beside what has no approval":    {gated, dispatched(1, "r"), "no approval"},
		"sent while people think":             {append(gated[:3:3], requested("d")), dispatched(1, "r"), "no approval"},
		"sent after a denial":                 {append(gated[:3:3], requested("d"), ann(ApprovalDenied{Digest: "d"})), dispatched(1, "r"), "no approval"},
		"a result of nothing":                 {begun(), ok("r", 0), "no turn"},
		"a result of an unknown call":         {open, ok("x", 0), "no turn has call"},
		"a second result":                     {append(open[:3:3], ok("r", 0)), ok("r", 0), "has its result"},
		"a result of another attempt":         {sent, ok("a", 2), "has attempt 1"},
		"an outcome of what was not sent":     {open, say(CallCompleted{ID: "r", Class: "transport", Retryable: true}), "not under way"},
		"a retry of a NonIdempotent call":     {sent, say(CallCompleted{ID: "a", Attempt: 1, Class: "transport", Retryable: true}), "not repeatable"},
		"neither result nor unknown":          {sent, say(CallCompleted{ID: "a", Attempt: 1, Class: "timeout", Effect: EffectRejected}), "neither a result"},
		"a read whose effect is unknown":      {append(open[:3:3], dispatched(1, "r")), say(CallCompleted{ID: "r", Attempt: 1, Class: "timeout", Effect: EffectUnknown}), "neither a result"},
		"a retry of a retry":                  {append(open[:3:3], dispatched(1, "r"), retry), retry, "not under way"},
		"asked without a turn":                {begun(), requested("d"), "no turn"},
		"asked twice":                         {append(gated[:3:3], requested("d")), requested("e"), "asked something already"},
		"asked after sending":                 {sent, requested("d"), "sent before"},
		"asked without a digest":              {gated, requested(""), "no digest"},
		"approved, and not asked":             {gated, ann(ApprovalGranted{Digest: "d"}), "not pending"},
		"approved, and something else":        {append(gated[:3:3], requested("d")), ann(ApprovalGranted{Digest: "e"}), "not pending"},
		"approved by nobody":                  {append(gated[:3:3], requested("d")), say(ApprovalGranted{Digest: "d"}), "names nobody"},
		"denied by nobody":                    {append(gated[:3:3], requested("d")), say(ApprovalDenied{Digest: "d"}), "names nobody"},
		"denied, and something else":          {append(gated[:3:3], requested("d")), ann(ApprovalDenied{Digest: "e"}), "not pending"},
		"denied, and asked anew meanwhile":    {append(gated[:3:3], requested("d"), ann(ApprovalGranted{Digest: "d"}), requested("e")), ann(ApprovalDenied{Digest: "d"}), "not pending"},
		"denied after sending":                {append(gated[:3:3], requested("d"), ann(ApprovalGranted{Digest: "d"}), dispatched(1, "r")), ann(ApprovalDenied{Digest: "d"}), "not pending"},
		"settled, and known":                  {sent, ann(EffectReconciled{ID: "a", EffectKey: "key-a", Effect: EffectCommitted}), "no unknown effect"},
		"settled under another key":           {append(sent[:4:4], unknown()), ann(EffectReconciled{ID: "a", EffectKey: "key-b", Effect: EffectCommitted}), "no unknown effect"},
		"settled as unknown":                  {append(sent[:4:4], unknown()), ann(EffectReconciled{ID: "a", EffectKey: "key-a", Effect: EffectUnknown}), "neither committed nor rejected"},
		"settled by nobody":                   {append(sent[:4:4], unknown()), say(EffectReconciled{ID: "a", EffectKey: "key-a", Effect: EffectCommitted}), "names nobody"},
		"a question of no call":               {question, say(QuestionAsked{ID: "q-1", CallID: "x"}), "no call asks"},
		"a question without an id":            {question, say(QuestionAsked{CallID: "q"}), "no id"},
		"a question twice":                    {append(question[:3:3], say(QuestionAsked{ID: "q-1", CallID: "q"})), say(QuestionAsked{ID: "q-2", CallID: "q"}), "asked something already"},
		"an answer to nothing":                {question, ann(QuestionAnswered{ID: "q-1"}), "not open"},
		"an answer to another question":       {append(question[:3:3], say(QuestionAsked{ID: "q-1", CallID: "q"})), ann(QuestionAnswered{ID: "q-2"}), "not open"},
		"an answer by nobody":                 {append(question[:3:3], say(QuestionAsked{ID: "q-1", CallID: "q"})), say(QuestionAnswered{ID: "q-1"}), "names nobody"},
		"a turn closed that is not open":      {begun(), say(TurnCompleted{}), "no turn"},
		"a turn closed with calls open":       {append(open[:3:3], ok("r", 0)), say(TurnCompleted{}), "without results"},
		"suspended twice":                     {begun(say(Suspended{})), say(Suspended{}), "suspended already"},
		"resumed without being suspended":     {begun(), say(Resumed{}), "not suspended"},
		"an ending without a reason":          {begun(), say(Finished{}), "no reason"},
		"an ending with calls open":           {open, say(Finished{Reason: "Cancelled"}), "without results"},
		"anything after the end":              {begun(say(Finished{Reason: "Cancelled"})), say(Claimed{Worker: "b"}), "has ended"},
		"a second ending":                     {begun(say(Finished{Reason: "Cancelled"})), say(Finished{Reason: "Completed"}), "has ended"},
		"a settlement of nothing, at the end": {begun(say(Finished{Reason: "Cancelled"})), ann(EffectReconciled{ID: "a", EffectKey: "k", Effect: EffectCommitted}), "no unknown effect"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			draft := journalOf(t, test.before...)
			before, err := Fold(testUID, draft.Records)
			if err != nil {
				t.Fatal(err)
			}
			n := len(draft.Records)
			err = draft.Add(test.then.payload, Meta{Time: beginning.Add(time.Hour), By: test.then.by, Part: test.then.part, ActiveMillis: 1 << 40})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if diff := cmp.Diff(before, draft.State); diff != "" || len(draft.Records) != n {
				t.Errorf("%d records were added, and the state changed:\n%s", len(draft.Records)-n, diff)
			}
		})
	}
}

// Each event has to continue the chain of exactly this run.
func TestTheChain(t *testing.T) {
	whole := journalOf(t, begun(say(Suspended{}), say(Resumed{}))...).Records
	cases := map[string]struct {
		edit func(*Event)
		want string
	}{
		"another format":        {func(e *Event) { e.V = 2 }, "format version 2"},
		"an event left out":     {func(e *Event) { e.Seq++ }, "does not follow"},
		"another event before":  {func(e *Event) { e.Prev = Genesis("other") }, "chain is broken"},
		"another epoch":         {func(e *Event) { e.Epoch++ }, "epoch"},
		"an epoch before":       {func(e *Event) { e.Epoch-- }, "epoch"},
		"another turn":          {func(e *Event) { e.Turn++ }, "turn"},
		"active time goes back": {func(e *Event) { e.ActiveMillis = 0 }, "active time"},
		"another type":          {func(e *Event) { e.Type = "Odd" }, "not known"},
		"data of another type":  {func(e *Event) { e.Data = json.RawMessage(`{"worker":"a"}`) }, "decoding data"},
		"no data":               {func(e *Event) { e.Data = nil }, "decoding data"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			records := append([]Record{}, whole...)
			test.edit(&records[3].Event)
			state, err := Fold(testUID, records)
			if err == nil || !strings.Contains(err.Error(), test.want) || state.Events != 3 {
				t.Errorf("error %v after %d events, want %q", err, state.Events, test.want)
			}
		})
	}
	if _, err := Fold("another run", whole); err == nil {
		t.Errorf("the journal of another run is read as this one's")
	}
	claim := journalOf(t, claimed).Records
	claim[0].Event.Epoch = 7
	if _, err := Fold(testUID, claim); err == nil || !strings.Contains(err.Error(), "epoch 7") {
		t.Errorf("a claim that skips epochs: %v", err)
	}
}

func TestDecode(t *testing.T) {
	good := journalOf(t, claimed).Records[0].Bytes
	cases := map[string]struct{ text, want string }{
		"not JSON":              {`{`, "decoding event"},
		"empty":                 {``, "decoding event"},
		"an unknown member":     {`{"v":1,"seq":1,"odd":1}`, "unknown field"},
		"another version":       {`{"v":2,"seq":1,"data":{}}`, "format version 2"},
		"no version":            {`{"seq":1,"data":{}}`, "format version 0"},
		"no sequence number":    {`{"v":1,"data":{}}`, "sequence number 0"},
		"more than one value":   {string(good) + `{}`, "more follows"},
		"a bracket too many":    {string(good) + `}`, "more follows"},
		"the wrong kind inside": {`{"v":1,"seq":"1"}`, "decoding event"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Decode([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	event, err := Decode(good)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(journalOf(t, claimed).Records[0].Event, event); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
}

// What is applied when it is written equals what is folded when it is read.
func TestWhatIsWrittenIsReadAsItWas(t *testing.T) {
	part := []byte("{ \"role\" : \"assistant\" }")
	final := entry{payload: DecisionMade{Kind: DecisionFinal, Text: "<a & b> \u2028 \"é\"", Part: strictjson.Digest(part)}, part: part}
	draft := journalOf(t, begun(final, say(Finished{Reason: "Completed"}))...)
	var read []Record
	for _, r := range draft.Records {
		event, err := Decode(r.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, Record{Event: event, Bytes: r.Bytes, Part: r.Part})
	}
	state, err := Fold(testUID, read)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(draft.State, state); diff != "" {
		t.Errorf("-written +read:\n%s", diff)
	}
	if got := string(state.Transcript[0].Part); got != string(part) {
		t.Errorf("the part is %s", got)
	}
	if strings.Contains(string(draft.Records[2].Bytes), `\u003c`) {
		t.Errorf("< is written as an escape: %s", draft.Records[2].Bytes)
	}
}
