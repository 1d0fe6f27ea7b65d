package toolpolicy

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/tool"
)

// What status shows at most, so that the object stays well below what can be stored.
const (
	maxTools       = 2048
	maxQuarantined = 128
	maxNameBytes   = 200
	maxReasonBytes = 512
)

// offers are what the servers of a policy said.
type offers struct {
	// asked is true where there was a server to ask.
	asked       bool
	tools       []offered
	quarantined []v1alpha1.QuarantinedTool
	unavailable []v1alpha1.UnavailableServer
}

// offered is a tool by its full name.
type offered struct {
	name       string
	definition tool.Definition
}

// ask asks every server that defines its tools itself.
func (r *Reconciler) ask(ctx context.Context, namespace string, servers []v1alpha1.ToolServer) (*offers, error) {
	seen := &offers{}
	for _, declared := range servers {
		if declared.MCP == nil {
			continue
		}
		seen.asked = true
		listing, err := r.list(ctx, namespace, declared)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			seen.unavailable = append(seen.unavailable, v1alpha1.UnavailableServer{Name: declared.Name, Reason: cut(oneLine(err.Error()), maxReasonBytes)})
			continue
		}
		for _, d := range listing.Tools {
			seen.tools = append(seen.tools, offered{declared.Name + "." + d.Name, d})
		}
		for _, q := range listing.Quarantined {
			seen.quarantined = append(seen.quarantined, v1alpha1.QuarantinedTool{
				Name: cut(declared.Name+"."+q.Name, maxNameBytes), Reason: cut(oneLine(q.Reason), maxReasonBytes),
			})
		}
	}
	return seen, nil
}

// list asks one server.
func (r *Reconciler) list(ctx context.Context, namespace string, declared v1alpha1.ToolServer) (tool.Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	server, err := r.servers.Server(ctx, namespace, declared)
	if err != nil {
		return tool.Listing{}, err
	}
	if closer, ok := server.(interface{ Close() }); ok {
		defer closer.Close()
	}
	return server.List(ctx)
}

// askNext is how long what was said holds.
func (o *offers) askNext() time.Duration {
	if len(o.unavailable) > 0 {
		return askAgain
	}
	return askEvery
}

// show adds what the servers said to what the spec says.
func (o *offers) show(compiled *policy.Policy, status v1alpha1.ToolPolicyStatus) v1alpha1.ToolPolicyStatus {
	status.Tools, status.Quarantined, status.Unavailable = declared(compiled), append(quarantined(compiled), o.quarantined...), o.unavailable
	for _, t := range o.tools {
		status.Tools = append(status.Tools, v1alpha1.ResolvedTool{Name: t.name, Effect: compiled.Effect(t.name), Digest: t.definition.Digest(t.name)})
	}
	slices.SortFunc(status.Tools, func(a, b v1alpha1.ResolvedTool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(status.Quarantined, func(a, b v1alpha1.QuarantinedTool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(status.Unavailable, func(a, b v1alpha1.UnavailableServer) int { return cmp.Compare(a.Name, b.Name) })
	status.Tools = status.Tools[:min(len(status.Tools), maxTools)]
	status.Quarantined = status.Quarantined[:min(len(status.Quarantined), maxQuarantined)]
	return status
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// cut shortens text at a rune boundary.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
