package fakemodel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pawl-run/pawl/test/fakemodel"
)

const recording = `version: 2
interactions:
- id: 0
  request:
    body: '{"model":"m","messages":[{"role":"user","content":"Go."}]}'
    url: https://fakemodel.example.com/v1/chat/completions
  response:
    body: |
      {"choices":[]}
    headers:
      content-type:
      - application/json
      Content-Length:
      - "99999"
    code: 200
- id: 1
  request:
    body: '{"model":"m","messages":[{"role":"user","content":"Go."}]}'
  response:
    body: busy
    code: 503
`

func TestReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recording.yaml")
	if err := os.WriteFile(path, []byte(recording), 0o600); err != nil {
		t.Fatal(err)
	}
	exchanges, err := fakemodel.ReadCassette(path)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fakemodel.StartReplay(exchanges)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for n, want := range []struct {
		status int
		body   string
	}{{200, "{\"choices\":[]}\n"}, {503, "busy"}} {
		status, body := post(t, server, string(exchanges[n].RequestBody))
		if status != want.status || body != want.body {
			t.Errorf("exchange %d: got %d %q, want %d %q", n, status, body, want.status, want.body)
		}
		if diff := fakemodel.DiffRequests(server.Requests()[n].Body, exchanges[n].RequestBody); diff != "" {
			t.Errorf("exchange %d: what was sent is not what was recorded:\n%s", n, diff)
		}
	}
}

func TestReadCassetteRefuses(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{"an older version": "version: 1\n", "no YAML": "{", "a list": "- 1\n"} {
		path := filepath.Join(folder, "recording.yaml")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := fakemodel.ReadCassette(path); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if _, err := fakemodel.ReadCassette(filepath.Join(folder, "missing.yaml")); err == nil {
		t.Error("a missing file was read")
	}
}
