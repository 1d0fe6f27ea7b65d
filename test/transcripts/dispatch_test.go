package transcripts

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/journal"
	"github.com/pawl-run/pawl/internal/policy"
	"github.com/pawl-run/pawl/internal/run"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
	httptool "github.com/pawl-run/pawl/internal/tool/http"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// shape is one form that a reply with calls may take.
type shape struct {
	// tools are the schemas of the arguments, by the tools' full names.
	tools map[string]string
	calls []proposed
	// onlyText leaves out the wires on which arguments are an object and not a text.
	onlyText bool
}

// proposed is one call of the reply.
type proposed struct {
	// tool is the full name, arguments the text as the model writes it.
	tool, arguments string
	// problem is a piece of what the model reads where the call may not be sent. Where it is
	// empty the service gets the arguments as they were written.
	problem string
}

// office is the service behind the tools: it notes what comes and answers how many came.
type office struct {
	*httptest.Server
	mu  sync.Mutex
	got []received
}

type received struct{ path, body, key string }

func openOffice(t *testing.T) *office {
	o := &office{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		o.mu.Lock()
		defer o.mu.Unlock()
		if err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		o.got = append(o.got, received{r.URL.Path, string(body), r.Header.Get("Idempotency-Key")})
		_, _ = fmt.Fprintf(w, `{"received":%d}`, len(o.got))
	}))
	t.Cleanup(o.Close)
	return o
}

// catalogue gives a run the tools of a shape, in the order of their names.
func (c shape) catalogue(t *testing.T, s *stage, url string) map[string][]tool.Definition {
	t.Helper()
	servers, definitions := map[string]*v1alpha1.HTTPServer{}, map[string][]tool.Definition{}
	names := slices.Sorted(maps.Keys(c.tools))
	aliases := run.Aliases(names)
	var offered []journal.Tool
	for _, full := range names {
		server, name, _ := strings.Cut(full, ".")
		schema := json.RawMessage(c.tools[full])
		d := tool.Definition{Name: name, Description: "Does " + name + ".", InputSchema: schema}
		definitions[server] = append(definitions[server], d)
		offered = append(offered, journal.Tool{Name: full, Alias: aliases[full], Description: d.Description, InputSchema: schema, Digest: d.Digest(full)})
		if servers[server] == nil {
			servers[server] = &v1alpha1.HTTPServer{URL: url + "/" + server}
		}
		servers[server].Tools = append(servers[server].Tools, v1alpha1.HTTPTool{Name: name, Description: d.Description, InputSchema: runtime.RawExtension{Raw: schema}})
	}
	spec := v1alpha1.ToolPolicySpec{
		Tools: []v1alpha1.ToolProperties{{Match: []string{"*"}, Effect: v1alpha1.EffectReadOnly, Execution: v1alpha1.ExecutionParallel}},
		Rules: []v1alpha1.ToolRule{{Name: "all", Match: []string{"*"}, Action: v1alpha1.ActionAllow}},
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		spec.Servers = append(spec.Servers, v1alpha1.ToolServer{Name: name, HTTP: servers[name]})
	}
	one, problems := policy.Compile("tools", spec)
	if len(problems) > 0 {
		t.Fatalf("compiling the policy: %v", problems)
	}
	set, err := policy.NewSet([]*policy.Policy{one})
	if err != nil {
		t.Fatal(err)
	}
	s.facts.Policies = set
	s.facts.Configuration.Started.Tools = append(offered, run.ReadTool())
	return definitions
}

// dispatch sends the calls that are in the air, by the adapter, and lands what comes of them.
func (s *stage) dispatch(url string, definitions map[string][]tool.Definition) {
	s.t.Helper()
	for len(s.air) > 0 {
		sending := s.air[0]
		serverName, name, _ := strings.Cut(sending.Call.Tool, ".")
		server, err := httptool.New(httptool.Options{URL: url + "/" + serverName, Tools: definitions[serverName]})
		if err != nil {
			s.t.Fatal(err)
		}
		outcome := server.Call(s.t.Context(), tool.Call{
			Tool: name, FullName: sending.Call.Tool, Digest: digestOf(s.state(), sending.Call.Tool),
			Arguments: run.ArgumentBytes(sending.Call.Arguments), ID: sending.Call.ID, EffectKey: sending.Call.EffectKey,
			Attempt: sending.Attempt, Epoch: s.state().Epoch, Repeatable: true,
			RunNamespace: "support", RunName: "order-17", RunUID: runUID, Timeout: sending.Timeout, MaxResultBytes: sending.Call.MaxResultBytes,
		})
		server.Close()
		s.land(sending.Call.Alias, outcome)
	}
}

func digestOf(s *journal.State, name string) string {
	for _, t := range s.Run.Tools {
		if t.Name == name {
			return t.Digest
		}
	}
	return ""
}

// play lets a model of a wire reply with the calls, and checks what the service gets and
// what the model reads of it, in the order of the calls.
func (c shape) play(t *testing.T, w wireUnderTest) {
	s, service := newStage(t, w, 0), openOffice(t)
	definitions := c.catalogue(t, s, service.URL)
	var calls []fakemodel.Call
	for _, p := range c.calls {
		alias := strings.ReplaceAll(p.tool, ".", "_") // as a model would that makes it up
		for _, entry := range s.facts.Configuration.Started.Tools {
			if entry.Name == p.tool {
				alias = entry.Alias
			}
		}
		calls = append(calls, call(alias, p.arguments))
	}
	s.server.Enqueue(proposes(calls...))
	for s.drive(); len(s.air) > 0; s.drive() {
		s.dispatch(service.URL, definitions)
	}
	request := s.final()

	read := results(request)
	if len(read) != len(c.calls) {
		t.Fatalf("the model reads %d results of %d calls: %+v", len(read), len(c.calls), request.Messages)
	}
	keys := map[string]bool{}
	for i, p := range c.calls {
		if problem := p.compare(t, read[i], service.got, keys); problem != "" {
			t.Errorf("call %d of %s: %s", i, p.tool, problem)
		}
	}
	if len(keys) != len(service.got) {
		t.Errorf("the service got %d calls, want %d", len(service.got), len(keys))
	}
}

// compare says what is wrong with what became of a call, by what the model reads of it. It
// notes the keys under which calls were sent.
func (p proposed) compare(t *testing.T, read string, all []received, keys map[string]bool) string {
	t.Helper()
	if p.problem != "" {
		if !strings.Contains(read, p.problem) || !strings.Contains(read, `"class":"validation"`) {
			return fmt.Sprintf("the model reads %s, want %q", read, p.problem)
		}
		return ""
	}
	var result struct{ Received int }
	if err := json.Unmarshal([]byte(read), &result); err != nil || result.Received < 1 || result.Received > len(all) {
		return "the model reads " + read
	}
	got := all[result.Received-1]
	double := keys[got.key]
	keys[got.key] = true
	switch {
	case got.path != "/"+strings.Replace(p.tool, ".", "/", 1):
		return "it came to " + got.path
	case canonical(t, got.body) != canonical(t, p.arguments):
		return fmt.Sprintf("it came with %s, want %s", got.body, p.arguments)
	case double || got.key == "":
		return fmt.Sprintf("it has the key %q, empty or another's", got.key)
	}
	return ""
}

// results are what the model reads of the calls, in order.
func results(request fakemodel.Request) []string {
	var read []string
	for _, m := range request.Messages {
		if m.Role == "tool" {
			read = append(read, m.Text)
		}
	}
	return read
}

// canonical keeps the text of numbers: an integer beyond 2^53 is not another one.
func canonical(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		text = "{}"
	}
	value, err := strictjson.Parse([]byte(text), strictjson.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(strictjson.Canonical(value))
}

func TestShapesOfCalls(t *testing.T) {
	for _, w := range wiresUnderTest {
		for name, c := range shapes() {
			if c.onlyText && !w.textArguments {
				continue
			}
			t.Run(w.wire.Name()+"/"+name, func(t *testing.T) { c.play(t, w) })
		}
	}
}
