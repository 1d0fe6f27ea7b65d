package tool_test

import (
	"encoding/json"
	"testing"

	"github.com/pawl-run/pawl/internal/tool"
)

func TestDigest(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","minProperties":1}`)
	one := tool.Definition{Name: "b", Description: "text", InputSchema: schema, Annotations: json.RawMessage(`{"readOnlyHint":true}`)}
	digest := one.Digest("a.b")
	same := one
	same.InputSchema, same.Annotations = json.RawMessage("{ \"minProperties\": 1,\n \"type\": \"object\" }"), json.RawMessage(`{"readOnlyHint": true}`)
	if same.Digest("a.b") != digest {
		t.Error("white space and order of members change the digest")
	}
	change := func(edit func(*tool.Definition)) string {
		other := one
		edit(&other)
		return other.Digest("a.b")
	}
	for name, other := range map[string]string{
		"name":        one.Digest("a.c"),
		"description": change(func(d *tool.Definition) { d.Description = "test" }),
		"schema":      change(func(d *tool.Definition) { d.InputSchema = json.RawMessage(`{"type":"object","minProperties":2}`) }),
		"annotation":  change(func(d *tool.Definition) { d.Annotations = json.RawMessage(`{"readOnlyHint":false}`) }),
		"annotations": change(func(d *tool.Definition) { d.Annotations = nil }),
	} {
		if other == digest {
			t.Errorf("a change of the %s leaves the digest as it was", name)
		}
	}
	for want, given := range map[bool]string{false: digest, true: "sha256:other"} {
		if one.Changed(tool.Call{FullName: "a.b", Digest: given}) != want {
			t.Errorf("Changed with digest %s is %v", given, !want)
		}
	}
	if one.Changed(tool.Call{FullName: "a.b"}) {
		t.Error("a call that names no definition counts as changed")
	}
}
