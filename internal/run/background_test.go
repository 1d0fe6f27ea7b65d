package run

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/prompt"
	"github.com/pawl-run/pawl/internal/tool"
)

// behind is the sample policy in which calls of act, and of look, go on in the background.
func behind(more ...v1alpha1.ToolRule) *v1alpha1.ToolPolicySpec {
	spec := withProperties(
		v1alpha1.ToolProperties{Match: []string{"s.act"}, Execution: v1alpha1.ExecutionBackground, TimeoutSeconds: 600, ConflictKey: "args.k"},
		v1alpha1.ToolProperties{Match: []string{"s.look"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionBackground, TimeoutSeconds: 600},
		v1alpha1.ToolProperties{Match: []string{"s.pay"}, ConflictKey: "args.k"},
	)
	spec.Rules = append(more, spec.Rules...)
	return ptr.To(spec)
}

// checking lets the model look at calls in the background.
func checking(r *journal.RunStarted) { r.Tools = append(r.Tools, CheckTool()) }

func looksAt(id, about, more string) model.Call {
	return called(id+":check", `{"call":"`+about+`"`+more+`}`)
}

// backgroundScene begins a call in the background, after which the model is asked again.
func backgroundScene(more ...act) scene {
	begins := []act{calls(called("a:act", `{"k":"x"}`)), lands("a", goesOn), waitsFor(v1alpha1.ReasonRunning)}
	return scene{started: checking, spec: behind(), acts: append(begins, more...)}
}

func (c scene) ends(kind Kind, waiting v1alpha1.Reason) scene {
	c.wantKind, c.wantWaiting = kind, waiting
	return c
}

func (c scene) gives(classes map[string]string) scene {
	c.wantClasses = classes
	return c
}

// concludes is the answer of the model.
func concludes(text string) act { return says(finalAnswer(text)) }

func TestCallsInTheBackground(t *testing.T) {
	waiting, running, asking := v1alpha1.ReasonWaitingForTool, v1alpha1.ReasonRunning, v1alpha1.ReasonApprovalRequired
	look, wait := calls(looksAt("c", "a", "")), calls(looksAt("c", "a", `,"wait":true`))
	cancelled := backgroundScene(wants(Cancelled), concludes("x"), learns("a", turnedOff)).gives(map[string]string{"a": "rejected"})
	cancelled.wantReason = v1alpha1.ReasonCancelled
	playAll(t, map[string]scene{
		"let the model work on":       backgroundScene().ends(Await, running).gives(map[string]string{}),
		"can be looked at":            backgroundScene(look).ends(Await, running).gives(map[string]string{"c": "ok"}),
		"can be waited for":           backgroundScene(wait).ends(Rest, waiting),
		"and have their result":       backgroundScene(wait, untilThen, learns("a", gave(`7`))).ends(Await, running).gives(map[string]string{"a": "ok", "c": "ok"}),
		"or their failure":            backgroundScene(wait, untilThen, learns("a", turnedOff)).ends(Await, running).gives(map[string]string{"a": "rejected", "c": "rejected"}),
		"a second look waits":         backgroundScene(look, calls(looksAt("d", "a", ""))).ends(Rest, waiting),
		"unless something else is on": backgroundScene(look, calls(looksAt("d", "a", ""), called("r:read", `{}`)), lands("r", gave(`1`))).ends(Await, running),
		"are asked about meanwhile":   backgroundScene(calls(called("p:pay", `{}`)), passes(11*time.Second), lands("p", gave(`1`)), learns("a", gave(`7`))).ends(Await, running).gives(map[string]string{"a": "ok", "p": "ok"}),
		"outlive the process":         backgroundScene(restarts, wait, untilThen, learns("a", gave(`7`))).ends(Await, running).gives(map[string]string{"a": "ok", "c": "ok"}),
		"are completed by whom":       backgroundScene(wait, delivers("a", `7`, "ann")).ends(Await, running).gives(map[string]string{"a": "ok", "c": "ok"}),
		"hold their conflict key":     backgroundScene(calls(called("p:pay", `{"k":"x"}`)), inTheAir(), untilThen, learns("a", gave(`7`)), inTheAir("p")).ends(Await, running),
		"but no other":                backgroundScene(calls(called("p:pay", `{"k":"y"}`)), inTheAir("p")).ends(Await, running),
		"in doubt hold up the run":    backgroundScene(wait, passes(time.Hour), learns("a", goesOn), learns("a", goesOn)).ends(Rest, v1alpha1.ReasonOutcomeUnknown),
		"and are settled":             backgroundScene(wait, passes(time.Hour), learns("a", goesOn), learns("a", goesOn), settlesAs("committed")).ends(Await, running).gives(map[string]string{"a": "ok", "c": "ok"}),
		"another call is none":        backgroundScene(calls(looksAt("c", "b", ""))).ends(Await, running).gives(map[string]string{"c": "tool_error"}),
		"are called off with the run": cancelled,
		"are none where the service answers at once": func() scene {
			return scene{started: checking, spec: behind(), acts: []act{calls(called("a:act", `{}`)), lands("a", gave(`7`))}}.ends(Await, running).gives(map[string]string{"a": "ok"})
		}(),
		"are none where the model can't look": scene{spec: behind(), acts: []act{calls(called("a:act", `{}`)), lands("a", goesOn)}}.ends(Rest, waiting),
		"are polled while people are asked": func() scene {
			c := backgroundScene(calls(called("p:pay", `{"k":"y"}`)), waitsFor(asking), untilThen, learns("a", gave(`7`)))
			c.spec = behind(askRule("pays", returning(600), "s.pay"))
			return c.ends(Rest, asking).gives(map[string]string{"a": "ok"})
		}(),
	})
}

// No run ends while its calls go on, nor before the model knows what they came to.
func TestAnAnswerWaitsForTheBackground(t *testing.T) {
	ends := func(reason v1alpha1.Reason, c scene) scene {
		c.wantReason = reason
		return c
	}
	finished := []act{concludes("done"), waitsFor(v1alpha1.ReasonWaitingForTool), untilThen, learns("a", gave(`7`)), waitsFor(v1alpha1.ReasonRunning)}
	once := backgroundScene(append(finished[:4:4], func(*stage, Step) {})...)
	once.started = func(r *journal.RunStarted) { checking(r); r.Limits.MaxTurns = 2 }
	denied := backgroundScene(calls(called("p:pay", `{"k":"y"}`)), denies, learns("a", turnedOff))
	denied.spec = behind(askRule("pays", v1alpha1.Approval{TimeoutSeconds: 60, OnDeny: v1alpha1.ConsequenceEnd}, "s.pay"))
	exhausted := backgroundScene(says(invalidReply(model.CodeEmpty)), says(invalidReply(model.CodeEmpty)), says(invalidReply(model.CodeEmpty)), learns("a", goesOn))
	playAll(t, map[string]scene{
		"then it is given again":        ends(v1alpha1.ReasonCompleted, backgroundScene(append(finished, concludes("done, 7"))...)),
		"unless it has looked":          ends(v1alpha1.ReasonCompleted, backgroundScene(calls(looksAt("c", "a", `,"wait":true`)), untilThen, learns("a", gave(`7`)), concludes("done"))),
		"or no turn is left":            ends(v1alpha1.ReasonCompleted, once),
		"a denial calls them off":       ends(v1alpha1.ReasonApprovalDenied, denied).gives(map[string]string{"a": "rejected", "p": "denied"}),
		"so do limits":                  ends(v1alpha1.ReasonInvalidDecision, exhausted).gives(map[string]string{"a": "unknown"}),
		"what was called off may reply": ends(v1alpha1.ReasonCannotContinue, backgroundScene(calls(called("z:cannot_continue", `{"reason":"x"}`)), learns("a", gave(`7`)))),
	})
	s := backgroundScene(finished...).play(t)
	messages := prompt.Project(s.state()).Messages
	last := messages[len(messages)-1]
	if last.Role != model.RoleUser || !strings.Contains(last.Text, `{"id":"a","tool":"act","result":"7"}`) || messages[len(messages)-2].Text != "done" {
		t.Errorf("the model is told %+v", messages[len(messages)-2:])
	}
}

// What the model was told of a call in the background stays as it was, whatever becomes of
// the call: a conversation only grows.
func TestWhatIsSaidOfTheBackgroundStays(t *testing.T) {
	s := backgroundScene(calls(looksAt("c", "a", "")), calls(looksAt("d", "a", `,"wait":true`))).play(t)
	s.facts.Now = s.facts.Now.Add(10 * time.Second)
	before := prompt.Project(s.state()).Messages[:5]
	s.drive()
	s.learn("a", gave(`{"pages":3}`))
	s.drive()
	after := prompt.Project(s.state()).Messages
	if diff := cmp.Diff(before, after[:5]); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	running := `{"call":"a","state":"running"}`
	for i, want := range map[int]string{2: running, 4: running, 6: `{"pages":3}`} {
		if message := after[i]; message.Role != model.RoleTool || string(message.Value) != want || message.Failed || !strings.HasPrefix(message.Text, want) {
			t.Errorf("message %d is %+v, want %s", i, message, want)
		}
	}
	if page, problem := prompt.Page(s.state(), "a", 0, ""); problem != "" || !strings.Contains(page, `{"pages":3}`) {
		t.Errorf("read again it is %q %q", page, problem)
	}
	if n := s.state().ToolCalls; n != 1 {
		t.Errorf("%d calls count", n)
	}
	for _, record := range s.records {
		if record.Event.Type == journal.TypeCallCompleted && strings.Count(string(record.Event.Data), "pages") > 0 && strings.Contains(string(record.Event.Data), `"of"`) {
			t.Error("the result is stored twice")
		}
	}
}

// A call in the background may ask, too, and people are asked one thing at a time.
func TestTheBackgroundMayAsk(t *testing.T) {
	asks := backgroundScene(calls(called("p:pay", `{"k":"y"}`)), passes(11*time.Second), lands("p", gave(`1`)), learns("a", taskWants(howMuch)))
	playAll(t, map[string]scene{
		"the model's question comes after": backgroundScene(append(asks.acts[3:len(asks.acts):len(asks.acts)], calls(called("q:ask", `{"question":"Which?"}`)), waitsFor(v1alpha1.ReasonInputRequired), answers(`5`), waitsFor(v1alpha1.ReasonInputRequired), answers(`that one`))...).
			ends(Await, v1alpha1.ReasonRunning).gives(map[string]string{"p": "ok", "q": "ok"}),
		"an answer waits for it": backgroundScene(append(asks.acts[3:len(asks.acts):len(asks.acts)], concludes("done"), waitsFor(v1alpha1.ReasonInputRequired), answers(`5`), waitsFor(v1alpha1.ReasonWaitingForTool))...),
	})
}

// The goal may be measured by what a call in the background came to, once that is read.
func TestTheBackgroundAndProgress(t *testing.T) {
	s := backgroundScene(calls(looksAt("c", "a", `,"wait":true`)), untilThen, learns("a", tool.Outcome{Class: tool.ClassOK, Effect: tool.EffectCommitted, Value: json.RawMessage(`{"left":3}`)})).play(t)
	turn := &s.state().Transcript[1]
	s.state().Run.Progress = &journal.Progress{Expression: "results[0].left"}
	value, err := measure(s.state(), turn)
	if err != nil || value != int64(3) {
		t.Errorf("progress is %v, %v", value, err)
	}
	if value, err := measure(s.state(), &s.state().Transcript[0]); err == nil {
		t.Errorf("a call that was only begun measures %v", value)
	}
}

// A child run in the background keeps its share of the budget, shows where people are waited
// for, and is charged when it ends.
func TestChildrenInTheBackground(t *testing.T) {
	spec := inChildren(v1alpha1.Limits{MaxTokens: 1000})
	spec.Tools = append([]v1alpha1.ToolProperties{{Match: []string{"s.act"}, Execution: v1alpha1.ExecutionBackground}}, spec.Tools...)
	begun := scene{started: checking, spec: spec, acts: []act{calls(called("a:act", `{}`)), lands("a", childGoesOn), waitsFor(v1alpha1.ReasonRunning)}}
	s := begun.play(t)
	if tokens, _ := s.state().Reserved(); tokens != 1000 {
		t.Errorf("%d tokens are reserved while it goes on", tokens)
	}
	s.answer(proposes(looksAt("c", "a", `,"wait":true`)))
	if step := s.drive(); step.Waiting != string(v1alpha1.ReasonWaitingForTool) {
		t.Errorf("the run waits for %s", step.Waiting)
	}
	f := s.look()
	f.ChildWaits = map[string]ChildWait{"a": {Name: "child", Reason: string(v1alpha1.ReasonInputRequired)}}
	if step := Next(f); step.Waiting != string(v1alpha1.ReasonInputRequired) || !step.Anew {
		t.Errorf("while people are asked below it the run is to %s %s", step.Kind, step.Waiting)
	}
	untilThen(s, s.drive())
	s.drive()
	s.learn("a", childEnded(700, 3))
	s.drive()
	tokens, _ := s.state().Reserved()
	if used := s.state().Children.Usage.Total(); tokens != 0 || used != 700 || s.classes()["c"] != "ok" {
		t.Errorf("%d tokens are reserved and %d charged, results %v", tokens, used, s.classes())
	}
}

// A replica that leaves asking to another one says what the run waits for all the same.
func TestWhoLeavesAskingToOthers(t *testing.T) {
	c := backgroundScene(calls(called("p:pay", `{"k":"y"}`)), waitsFor(v1alpha1.ReasonApprovalRequired))
	c.spec = behind(askRule("pays", returning(600), "s.pay"))
	s := c.play(t)
	f := s.look()
	f.Now = f.Now.Add(10 * time.Second)
	poll := Next(f)
	until := f.Now.Add(time.Minute)
	step := LeaveAsking(f, poll, until)
	if poll.Kind != Poll || step.Kind != Rest || step.Waiting != string(v1alpha1.ReasonApprovalRequired) || step.Until.After(until) || !step.Until.After(f.Now) {
		t.Errorf("instead of %s it is to %s %s until %s", poll.Kind, step.Kind, step.Waiting, step.Until)
	}
	if len(f.Polled) != 0 {
		t.Error("what this process remembers has changed")
	}
}
