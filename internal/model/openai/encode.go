package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pawl-run/pawl/internal/model"
)

// maxDescription is how many characters of a tool's description the vendor accepts.
const maxDescription = 1024

// legalName is what the vendor accepts as a tool's name, in tools and in echoed calls.
var legalName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Encode renders the body of a request, the exact bytes that Decide sends. Equal
// requests give equal bytes, and a request that continues a conversation repeats the
// earlier one's messages unchanged, so that prefix caches hit.
func (c *Client) Encode(request model.Request) ([]byte, error) {
	if request.MaxOutputTokens < 1 {
		return nil, errors.New("encoding a request: MaxOutputTokens must be at least 1")
	}
	messages, err := encodeMessages(request)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	body := object{
		{"model", quote(c.model)},
		{"messages", messages},
	}
	if len(request.Tools) > 0 {
		tools, err := c.encodeTools(request.Tools)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		body = append(body, member{"tools", tools}, member{"tool_choice", quote("auto")})
	}
	limit := json.RawMessage(strconv.FormatInt(int64(request.MaxOutputTokens), 10))
	body = append(body, member{c.limitMember, limit})
	return append(body, c.parameters...).bytes(), nil
}

func encodeMessages(request model.Request) (json.RawMessage, error) {
	if len(request.Messages) == 0 {
		return nil, errors.New("a conversation needs at least one message")
	}
	var list []json.RawMessage
	if request.System != "" {
		list = append(list, object{{"role", quote("system")}, {"content", quote(request.System)}}.bytes())
	}
	for i, m := range request.Messages {
		encoded, err := encodeMessage(m)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list = append(list, encoded)
	}
	return array(list), nil
}

func encodeMessage(m model.Message) (json.RawMessage, error) {
	switch m.Role {
	case model.RoleUser:
		return object{{"role", quote("user")}, {"content", quote(m.Text)}}.bytes(), nil
	case model.RoleTool:
		if m.CallID == "" {
			return nil, errors.New("a tool message needs the id of its call")
		}
		return object{
			{"role", quote("tool")},
			{"tool_call_id", quote(m.CallID)},
			{"content", quote(m.Text)},
		}.bytes(), nil
	case model.RoleAssistant:
		return encodeAssistant(m)
	default:
		return nil, errors.New("unknown role")
	}
}

func encodeAssistant(m model.Message) (json.RawMessage, error) {
	if len(m.Raw) > 0 {
		if !isObject(m.Raw) {
			return nil, errors.New("the raw assistant message is not a JSON object")
		}
		return m.Raw, nil
	}
	if len(m.Calls) == 0 {
		if m.Text == "" {
			return nil, errors.New("an assistant message needs text or calls")
		}
		return object{{"role", quote("assistant")}, {"content", quote(m.Text)}}.bytes(), nil
	}
	content := json.RawMessage("null")
	if m.Text != "" {
		content = quote(m.Text)
	}
	var calls []json.RawMessage
	for _, c := range m.Calls {
		if c.ID == "" {
			return nil, errors.New("a call needs an id")
		}
		calls = append(calls, object{
			{"id", quote(c.ID)},
			{"type", quote("function")},
			{"function", object{
				{"name", quote(echoName(c.Alias))},
				{"arguments", quote(echoArguments(c.Arguments))},
			}.bytes()},
		}.bytes())
	}
	return object{
		{"role", quote("assistant")},
		{"content", content},
		{"tool_calls", array(calls)},
	}.bytes(), nil
}

func (c *Client) encodeTools(tools []model.Tool) (json.RawMessage, error) {
	var list []json.RawMessage
	for i, t := range tools {
		if !legalName.MatchString(t.Alias) {
			return nil, fmt.Errorf("tool %d: its alias is not a legal name", i)
		}
		schema, err := encodeSchema(t.InputSchema)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		description := t.Description
		if c.limitsDescriptions {
			description = cut(description, maxDescription)
		}
		list = append(list, object{
			{"type", quote("function")},
			{"function", object{
				{"name", quote(t.Alias)},
				{"description", quote(description)},
				{"strict", json.RawMessage("false")},
				{"parameters", schema},
			}.bytes()},
		}.bytes())
	}
	return array(list), nil
}

// encodeSchema compacts a schema and adds what the vendor refuses a tool without: a
// root of type object that has properties. Arguments are an object anyway, so neither
// changes what the schema accepts.
func encodeSchema(schema json.RawMessage) (json.RawMessage, error) {
	if len(schema) == 0 {
		schema = json.RawMessage("{}")
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, schema); err != nil {
		return nil, errors.New("the input schema is not valid JSON")
	}
	root, err := parseObject(compact.Bytes())
	if err != nil {
		return nil, fmt.Errorf("the input schema: %w", err)
	}
	complete := root
	if root.get("type") == nil {
		complete = complete.with("type", quote("object"))
	}
	if root.get("properties") == nil {
		complete = complete.with("properties", json.RawMessage("{}"))
	}
	return complete.bytes(), nil
}

// cut shortens text to at most limit characters and marks where it did.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	const mark = "..."
	return strings.TrimSpace(string([]rune(text)[:limit-len(mark)])) + mark
}

// outputLimitMember names the member that bounds a reply. Reasoning models refuse
// max_tokens, and many compatible servers know only that. A vendor prefix
// ("openai/gpt-5") and the mark of a fine-tuned model do not count.
func outputLimitMember(name string) string {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	name = strings.TrimPrefix(name, "ft:")
	if reasoningFamily.MatchString(name) {
		return "max_completion_tokens"
	}
	return "max_tokens"
}

// reasoningFamily matches o1 and later, and gpt-5 and later; gpt-35 is an older
// model's name on a platform that allows no dots.
var reasoningFamily = regexp.MustCompile(`^(o[1-9]([-:@]|$)|gpt-([5-9]|1[0-9])([^0-9]|$))`)

func array(items []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
	return b.Bytes()
}
