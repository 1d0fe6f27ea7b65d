package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/controlplane"
)

// approver is the person of the demo. They have the role pawl-approver and nothing else.
const approver = "dana"

// hesitation is how long a question or an approval can be seen in the table before the person
// acts, and a slow tool before it is cancelled.
const hesitation = 1500 * time.Millisecond

// people plays the person: with the real kubectl, under their own name, and once for each
// sample.
type people struct {
	plane      *controlplane.ControlPlane
	kubeconfig string
	screen     *screen
	since      map[string]time.Time // when a sample first wanted something
	done       map[string]bool
}

func newPeople(plane *controlplane.ControlPlane, kubeconfig string, screen *screen) *people {
	return &people{
		plane: plane, kubeconfig: kubeconfig, screen: screen,
		since: map[string]time.Time{}, done: map[string]bool{},
	}
}

func (p *people) act(ctx context.Context, runs []pawlv1alpha1.AgentRun) error {
	for _, sample := range samples {
		run := find(runs, sample.name)
		if run == nil || p.done[sample.name] {
			continue
		}
		command, err := commandFor(sample.verdict, run)
		if err != nil {
			return err
		}
		if command == nil {
			continue
		}
		if _, seen := p.since[sample.name]; !seen {
			p.since[sample.name] = time.Now()
		}
		if time.Since(p.since[sample.name]) < hesitation {
			continue
		}
		p.done[sample.name] = true
		p.screen.note("%s$ kubectl %s", approver, quote(command))
		if out, err := p.plane.KubectlAs(ctx, p.kubeconfig, append(command, "--namespace", run.Namespace)...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

// commandFor returns what the person types when a run waits for them, and nil while it does not.
func commandFor(verdict verdict, run *pawlv1alpha1.AgentRun) ([]string, error) {
	annotate := []string{"annotate", "agentrun", run.Name}
	switch verdict {
	case approve:
		if run.Status.Pending != nil {
			return append(annotate, pawlv1alpha1.AnnotationApprove+"="+run.Status.Pending.Digest), nil
		}
	case deny:
		if run.Status.Pending != nil {
			return append(annotate, pawlv1alpha1.AnnotationDeny+"="+run.Status.Pending.Digest,
				pawlv1alpha1.AnnotationDenyReason+"=not this customer"), nil
		}
	case answer:
		if run.Status.Question != nil {
			value, err := json.Marshal(map[string]string{run.Status.Question.ID: "order-4711, please"})
			return append(annotate, pawlv1alpha1.AnnotationAnswer+"="+string(value)), err
		}
	case cancel:
		if run.Status.Turns > 0 && run.Status.CompletionTime == nil {
			return []string{"patch", "agentrun", run.Name, "--type=merge", `--patch={"spec":{"state":"Cancelled"}}`}, nil
		}
	case nobody:
	}
	return nil, nil
}

// quote shows a command as one could type it.
func quote(args []string) string {
	quoted := make([]string, 0, len(args))
	for _, arg := range args {
		if strings.ContainsAny(arg, " {}\"") {
			arg = "'" + arg + "'"
		}
		quoted = append(quoted, arg)
	}
	return strings.Join(quoted, " ")
}
