// Package samples checks that the samples fit the types, the tool server and each
// other; that they end as they say is tested with the operator.
package samples

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/expression"
	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/test/toolserver/tools"
)

// sample is the content of one file.
type sample struct {
	models   map[string]v1alpha1.Model
	policies map[string]v1alpha1.ToolPolicy
	runs     map[string]v1alpha1.AgentRun
}

func load(t *testing.T, path string) sample {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sample{map[string]v1alpha1.Model{}, map[string]v1alpha1.ToolPolicy{}, map[string]v1alpha1.AgentRun{}}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var head struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatal(err)
		}
		switch head.Kind {
		case "Model":
			put(t, s.models, document, func(m v1alpha1.Model) string { return m.Name })
		case "ToolPolicy":
			put(t, s.policies, document, func(p v1alpha1.ToolPolicy) string { return p.Name })
		case "AgentRun":
			put(t, s.runs, document, func(r v1alpha1.AgentRun) string { return r.Name })
		default:
			t.Fatalf("unexpected kind %q", head.Kind)
		}
	}
	return s
}

// put decodes strictly: a field that the types don't know is a mistake.
func put[T any](t *testing.T, into map[string]T, document []byte, name func(T) string) {
	t.Helper()
	var object T
	if err := yaml.UnmarshalStrict(document, &object); err != nil {
		t.Fatal(err)
	}
	into[name(object)] = object
}

func TestSamples(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("samples: %v, %v", files, err)
	}
	kustomization, err := os.ReadFile("kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if file == "kustomization.yaml" {
			continue
		}
		t.Run(file, func(t *testing.T) {
			if !strings.Contains(string(kustomization), "- "+file+"\n") {
				t.Error("missing in kustomization.yaml")
			}
			s := load(t, file)
			if len(s.runs) == 0 {
				t.Error("no AgentRun")
			}
			for _, run := range s.runs {
				model, ok := s.models[run.Spec.ModelRef.Name]
				if !ok {
					t.Errorf("%s names a Model that is not in the file", run.Name)
				}
				schemas := map[string]*jsonschema.Schema{}
				for _, ref := range run.Spec.ToolPolicyRefs {
					policy, ok := s.policies[ref.Name]
					if !ok {
						t.Errorf("%s names a ToolPolicy that is not in the file", run.Name)
					}
					checkPolicy(t, policy, schemas)
					checkChildren(t, s, policy, schemas)
				}
				checkScript(t, model.Spec.Script, schemas)
			}
		})
	}
}

// checkChildren looks at the tools that are runs: that everything which their templates name
// is in the file, and that what their Models call fits.
func checkChildren(t *testing.T, s sample, policy v1alpha1.ToolPolicy, schemas map[string]*jsonschema.Schema) {
	t.Helper()
	for _, server := range policy.Spec.Servers {
		if server.AgentRun == nil {
			continue
		}
		for _, entry := range server.AgentRun.Tools {
			schema, err := jsonschema.CompileObject(entry.InputSchema.Raw)
			if err != nil {
				t.Fatal(err)
			}
			schemas[server.Name+"."+entry.Name] = schema
			if _, err := expression.CompilePrompt(entry.Prompt); err != nil {
				t.Errorf("%s.%s: prompt: %v", server.Name, entry.Name, err)
			}
			model, ok := s.models[entry.Template.ModelRef.Name]
			if !ok {
				t.Errorf("%s.%s names a Model that is not in the file", server.Name, entry.Name)
			}
			for _, ref := range entry.Template.ToolPolicyRefs {
				if _, ok := s.policies[ref.Name]; !ok {
					t.Errorf("%s.%s names a ToolPolicy that is not in the file", server.Name, entry.Name)
				}
			}
			checkScript(t, model.Spec.Script, schemas)
		}
	}
}

// checkPolicy compiles what a policy holds, gathers the schemas of its tools by full
// name, and looks whether the tool server has them.
func checkPolicy(t *testing.T, policy v1alpha1.ToolPolicy, schemas map[string]*jsonschema.Schema) {
	t.Helper()
	service := httptest.NewServer(tools.New())
	defer service.Close()
	for _, server := range policy.Spec.Servers {
		if server.HTTP == nil {
			continue
		}
		path, ok := strings.CutPrefix(server.HTTP.URL, "http://127.0.0.1:8797")
		if !ok || path != "/"+server.Name {
			t.Errorf("server %s is at %s, not at the tool server", server.Name, server.HTTP.URL)
		}
		for _, entry := range server.HTTP.Tools {
			schema, err := jsonschema.CompileObject(entry.InputSchema.Raw)
			if err != nil {
				t.Fatal(err)
			}
			schemas[server.Name+"."+entry.Name] = schema
			// Not an object: known tools refuse it, unknown ones are not found.
			resp, err := http.Post(service.URL+path+"/"+entry.Name, "application/json", strings.NewReader("[]"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("the tool server has no %s.%s", server.Name, entry.Name)
			}
		}
	}
	for _, rule := range policy.Spec.Rules {
		if rule.When == "" {
			continue
		}
		if _, err := expression.CompileWhen(rule.When); err != nil {
			t.Error(err)
		}
	}
}

// checkScript looks whether the calls proposed are valid and the expressions compile.
func checkScript(t *testing.T, script []v1alpha1.ScriptStep, schemas map[string]*jsonschema.Schema) {
	t.Helper()
	for _, step := range script {
		for _, call := range step.ToolCalls {
			schema, ok := schemas[call.Tool]
			if !ok {
				t.Errorf("the script calls %s, which no policy declares", call.Tool)
				continue
			}
			arguments := json.RawMessage("{}")
			if call.Arguments != nil {
				arguments = call.Arguments.Raw
			}
			if err := schema.ValidateJSON(arguments); err != nil {
				t.Errorf("%s: %v", call.Tool, err)
			}
		}
		if step.FinalExpression != "" {
			if _, err := expression.CompileFinal(step.FinalExpression); err != nil {
				t.Error(err)
			}
		}
	}
}
