package anthropic

import (
	"encoding/json"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Types of blocks that are more than something to echo.
const (
	blockText = "text"
	blockCall = "tool_use"
)

// block is one block of a reply, with the bytes it came in.
type block struct {
	raw     json.RawMessage
	members wire.Object
	kind    string
	text    string
	// call of a block of type tool_use.
	call model.Call
}

// readContent reads the blocks of a reply. Thoughts, and blocks of types that nobody
// knows, are neither text nor calls: they are kept for the echo.
func readContent(value json.RawMessage) ([]block, string) {
	var text string
	if value != nil && json.Unmarshal(value, &text) == nil {
		// Some servers write the short form, which is for requests.
		value = wire.Array(textBlocks(text))
	}
	list, ok := wire.List(value)
	if !ok {
		return nil, "content is neither text nor a list of blocks"
	}
	blocks := make([]block, 0, len(list))
	calls := 0
	for _, raw := range list {
		b, problem := readBlock(raw)
		if problem != "" {
			return nil, problem
		}
		if b.kind == blockCall {
			calls++
		}
		blocks = append(blocks, b)
	}
	if calls > wire.MaxCalls {
		return nil, "it has more than 64 tool calls"
	}
	return blocks, ""
}

func readBlock(raw json.RawMessage) (block, string) {
	members, err := wire.ParseObject(raw)
	if err != nil {
		return block{}, "a content block: " + err.Error()
	}
	b := block{raw: raw, members: members}
	kind, ok := members.Text("type")
	if !ok || kind == "" {
		return block{}, "a content block has no type"
	}
	b.kind = kind
	switch kind {
	case blockText:
		if b.text, ok = members.Text("text"); !ok {
			return block{}, "the text of a content block is not a string"
		}
	case blockCall:
		return b.readCall()
	}
	return b, ""
}

func (b block) readCall() (block, string) {
	name, ok := b.members.Text("name")
	if !ok || wire.Blank(name) {
		return block{}, "a tool call has no name"
	}
	if b.members.Get("toolset_name") != nil {
		// The provider's own tools of that name; nobody offered them.
		return block{}, "a tool call is of a toolset that was not offered"
	}
	b.call.Alias, b.call.Arguments = name, readInput(b.members.Get("input"))
	if id, ok := b.members.Text("id"); ok && wire.UsableID(id) {
		b.call.ID = id
	}
	return b, ""
}

// readInput returns the arguments as text. Some servers give a string that holds the
// object in place of the object.
func readInput(value json.RawMessage) string {
	var text string
	if value != nil && json.Unmarshal(value, &text) == nil {
		return text
	}
	return string(value)
}

// echo returns the block as later requests repeat it: the provider's own bytes, unless a
// provider would refuse them. Nil for a block that no provider reads.
func (b block) echo() json.RawMessage {
	switch b.kind {
	case blockText:
		if wire.Blank(b.text) {
			return nil
		}
	case blockCall:
		return b.echoCall()
	}
	return b.raw
}

func (b block) echoCall() json.RawMessage {
	members, changed := b.members, false
	if id, ok := members.Text("id"); !ok || id != b.call.ID {
		members, changed = members.With("id", wire.Quote(b.call.ID)), true
	}
	if name := wire.EchoName(b.call.Alias); name != b.call.Alias {
		members, changed = members.With("name", wire.Quote(name)), true
	}
	if input := wire.EchoArguments(b.call.Arguments); !wire.IsObject(members.Get("input")) {
		members, changed = members.With("input", json.RawMessage(input)), true
	}
	if !changed {
		return b.raw
	}
	return members.Bytes()
}

// echoed is the content of a reply as later requests repeat it, nil for nothing.
func echoed(blocks []block) json.RawMessage {
	var list []json.RawMessage
	for _, b := range blocks {
		if raw := b.echo(); raw != nil {
			list = append(list, raw)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return wire.Array(list)
}

// textOf joins what the blocks say. The provider splits texts at citations, so nothing
// belongs between them.
func textOf(blocks []block) string {
	var text strings.Builder
	for _, b := range blocks {
		text.WriteString(b.text)
	}
	return text.String()
}
