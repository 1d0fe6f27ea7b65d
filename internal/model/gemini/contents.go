package gemini

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Roles of the wire.
const (
	roleUser  = "user"
	roleModel = "model"
)

// foreignSignature is what the vendor documents for a call that its model did not make,
// so that no signature of it exists.
const foreignSignature = "skip_thought_signature_validator"

// open is a call whose result comes next.
type open struct {
	// callID is the id that the conversation knows it by.
	callID string
	// name and id are the wire's; id is empty where the provider gave none.
	name, id string
}

// encodeContents renders the conversation. The results of a reply's calls become one
// content, one part for each call in the order of the calls, as the wire pairs them.
func (c *Client) encodeContents(messages []model.Message) (json.RawMessage, error) {
	messages, err := wire.Spoken(messages)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	var calls []open
	for i := 0; i < len(messages); i++ {
		var content json.RawMessage
		var err error
		switch m := messages[i]; {
		case m.Role == model.RoleTool:
			end := i
			for end < len(messages) && messages[end].Role == model.RoleTool {
				end++
			}
			content, err = encodeResults(calls, messages[i:end])
			calls, i = nil, end-1
		case len(calls) > 0:
			err = errors.New("it comes before the results of the calls before it")
		case m.Role == model.RoleUser:
			content = contentOf(roleUser, textPart(m.Text))
		case m.Role == model.RoleAssistant:
			content, calls, err = c.encodeReply(m)
		default:
			err = errors.New("unknown role")
		}
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list = append(list, content)
	}
	if len(calls) > 0 {
		return nil, errors.New("the results of the last calls are missing")
	}
	return wire.Array(list), nil
}

// encodeReply renders what the model said, with the calls that it leaves open.
func (c *Client) encodeReply(m model.Message) (json.RawMessage, []open, error) {
	if len(m.Raw) == 0 {
		return c.writeReply(m)
	}
	said, problem := readContent(m.Raw)
	if problem != "" {
		return nil, nil, errors.New("the raw message is not one of this wire: " + problem)
	}
	proposals := said.proposals()
	if len(proposals) != len(m.Calls) {
		return nil, nil, errors.New("the raw message has another number of calls")
	}
	var calls []open
	for i, p := range proposals {
		calls = append(calls, open{callID: m.Calls[i].ID, name: p.Alias, id: p.ID})
	}
	return m.Raw, calls, nil
}

// writeReply renders a message of which the provider's own form is not there: another
// model said it, or it was not kept.
func (c *Client) writeReply(m model.Message) (json.RawMessage, []open, error) {
	var parts []json.RawMessage
	if !wire.Blank(m.Text) {
		parts = append(parts, textPart(m.Text))
	}
	var calls []open
	for i, call := range m.Calls {
		if call.ID == "" {
			return nil, nil, errors.New("a call needs an id")
		}
		name := echoName(call.Alias)
		part := wire.Object{wire.M("functionCall", wire.Object{
			wire.M("name", wire.Quote(name)),
			wire.M("args", json.RawMessage(wire.EchoArguments(call.Arguments))),
		}.Bytes())}
		if i == 0 && c.signsCalls {
			part = append(part, wire.M("thoughtSignature", wire.Quote(foreignSignature)))
		}
		parts = append(parts, part.Bytes())
		calls = append(calls, open{callID: call.ID, name: name})
	}
	return contentOf(roleModel, parts...), calls, nil
}

// encodeResults renders the results of the calls, all of them and no others.
func encodeResults(calls []open, results []model.Message) (json.RawMessage, error) {
	if len(results) != len(calls) {
		return nil, fmt.Errorf("%d results follow %d calls", len(results), len(calls))
	}
	byCall := map[string]model.Message{}
	for _, m := range results {
		byCall[m.CallID] = m
	}
	var parts []json.RawMessage
	for _, call := range calls {
		m, ok := byCall[call.callID]
		if !ok {
			return nil, errors.New("a call has no result")
		}
		parts = append(parts, resultPart(call, m))
	}
	return contentOf(roleUser, parts...), nil
}

// resultPart renders one result. It stays text even where it is JSON: the wire's own
// objects hold numbers as floating point, which would change an identifier.
func resultPart(call open, m model.Message) json.RawMessage {
	var response wire.Object
	if call.id != "" {
		response = append(response, wire.M("id", wire.Quote(call.id)))
	}
	member := "output"
	if m.Failed {
		member = "error"
	}
	response = append(response,
		wire.M("name", wire.Quote(call.name)),
		wire.M("response", wire.Object{wire.M(member, wire.Quote(m.Text))}.Bytes()),
	)
	return wire.Object{wire.M("functionResponse", response.Bytes())}.Bytes()
}

func textPart(text string) json.RawMessage {
	return wire.Object{wire.M("text", wire.Quote(text))}.Bytes()
}

func contentOf(role string, parts ...json.RawMessage) json.RawMessage {
	return wire.Object{wire.M("role", wire.Quote(role)), wire.M("parts", wire.Array(parts))}.Bytes()
}
