package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
)

// recordedWires are the wires whose recordings can be replayed. Each has a file and a line
// here; Chat Completions is the pattern.
var recordedWires = []recordedWire{
	chat{},
	generateContent{},
	messages{},
	responded{},
}

// recordedWire reads what was recorded on one wire.
type recordedWire interface {
	// wire is what the replay server speaks.
	wire() fakemodel.Wire
	provider() v1alpha1.Provider
	// begin reads a recording's first request.
	begin(first fakemodel.Exchange) (beginning, error)
	// answer reads what a recorded reply says to the user.
	answer(last fakemodel.Exchange) (string, error)
	// differences are all ways in which a request of ours may differ from a recorded one.
	differences() []fakemodel.Difference
}

// beginning is what a run needs in order to begin as a recording does.
type beginning struct {
	model, systemPrompt, prompt string
	tools                       []fakemodel.Tool
	// maxOutputTokens is 0 where the recording has none.
	maxOutputTokens int32
	// parameters are the members of the request that the adapter does not set itself.
	parameters map[string]json.RawMessage
}

// wireOf finds the wire of a recording, nil for none.
func wireOf(exchange fakemodel.Exchange) (recordedWire, error) {
	address, err := url.Parse(exchange.URL)
	if err != nil {
		return nil, fmt.Errorf("a recording without an address: %w", err)
	}
	for _, w := range recordedWires {
		if w.wire().Serves(http.MethodPost, address.Path) {
			return w, nil
		}
	}
	return nil, nil
}

// parametersOf are the members of a request body that are not reserved.
func parametersOf(body []byte, reserved []string) (map[string]json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return nil, err
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return slices.Contains(reserved, name) })
	return members, nil
}

// tally counts what was replayed on one wire.
type tally struct {
	recordings, exchanges int
	// differing counts, by name, the requests that differ in this way.
	differing map[string]int
}

// tallies are by the wire's name.
type tallies map[string]*tally

func (t tallies) of(w recordedWire) *tally {
	name := w.wire().Name()
	if t[name] == nil {
		t[name] = &tally{differing: map[string]int{}}
	}
	return t[name]
}

// recordings of all wires together.
func (t tallies) recordings() int {
	sum := 0
	for _, one := range t {
		sum += one.recordings
	}
	return sum
}

func (t tallies) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%d recordings replayed", t.recordings())
	for _, w := range recordedWires {
		one := t.of(w)
		fmt.Fprintf(&text, "\n%s: %d recordings, %d exchanges", w.wire().Name(), one.recordings, one.exchanges)
		for _, d := range differencesOf(w) {
			fmt.Fprintf(&text, "\n  %d requests differ in: %s (%s)", one.differing[d.Name], d.Name, d.Why)
		}
	}
	return text.String()
}
