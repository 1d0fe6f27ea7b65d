package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// Roles on the wire. Results of tools come from the user.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
)

// turn is one message on the wire: what one side says until the other does.
type turn struct {
	role   string
	blocks []json.RawMessage
}

// turnsOf merges what one side says in a row into one turn each, in order: the provider
// would do the same, and older servers refuse two turns of one side. So the results of a
// reply's calls stand together in the turn that follows it, before any text.
func turnsOf(messages []model.Message) ([]turn, error) {
	spoken, err := wire.Spoken(messages)
	if err != nil {
		return nil, err
	}
	var turns []turn
	ids := map[string]string{}
	for i, m := range spoken {
		role, blocks, err := encodeMessage(m, ids)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		if len(turns) == 0 || turns[len(turns)-1].role != role {
			turns = append(turns, turn{role: role})
		}
		last := &turns[len(turns)-1]
		last.blocks = append(last.blocks, blocks...)
	}
	return turns, nil
}

func encodeTurns(turns []turn) json.RawMessage {
	list := make([]json.RawMessage, 0, len(turns))
	for _, t := range turns {
		list = append(list, wire.Object{wire.M("role", wire.Quote(t.role)), wire.M("content", wire.Array(t.blocks))}.Bytes())
	}
	return wire.Array(list)
}

// encodeMessage renders the blocks of a message; ids collects the call ids that had to be
// replaced.
func encodeMessage(m model.Message, ids map[string]string) (string, []json.RawMessage, error) {
	switch m.Role {
	case model.RoleUser:
		return roleUser, textBlocks(m.Text), nil
	case model.RoleTool:
		if m.CallID == "" {
			return "", nil, errors.New("a tool message needs the id of its call")
		}
		return roleUser, []json.RawMessage{resultBlock(m, ids)}, nil
	case model.RoleAssistant:
		blocks, err := assistantBlocks(m, ids)
		return roleAssistant, blocks, err
	default:
		return "", nil, errors.New("unknown role")
	}
}

func resultBlock(m model.Message, ids map[string]string) json.RawMessage {
	id := m.CallID
	if replaced, ok := ids[id]; ok {
		id = replaced
	}
	block := wire.Object{wire.M("type", wire.Quote("tool_result")), wire.M("tool_use_id", wire.Quote(id))}
	if texts := textBlocks(m.Text); len(texts) > 0 {
		block = append(block, wire.M("content", wire.Array(texts)))
	}
	if m.Failed {
		block = append(block, wire.M("is_error", json.RawMessage("true")))
	}
	return block.Bytes()
}

func assistantBlocks(m model.Message, ids map[string]string) ([]json.RawMessage, error) {
	if len(m.Raw) > 0 {
		for _, c := range m.Calls {
			// Its blocks have the ids that the provider knows.
			delete(ids, c.ID)
		}
		blocks, ok := wire.List(m.Raw)
		if !ok || len(blocks) == 0 {
			return nil, errors.New("the raw assistant message is not a list of blocks")
		}
		for _, block := range blocks {
			if !wire.IsObject(block) {
				return nil, errors.New("the raw assistant message has a block that is no JSON object")
			}
		}
		return blocks, nil
	}
	blocks := textBlocks(m.Text)
	for _, c := range m.Calls {
		if c.ID == "" {
			return nil, errors.New("a call needs an id")
		}
		if id := legalID(c.ID); id != c.ID {
			ids[c.ID] = id
		}
		blocks = append(blocks, wire.Object{
			wire.M("type", wire.Quote(blockCall)),
			wire.M("id", wire.Quote(legalID(c.ID))),
			wire.M("name", wire.Quote(wire.EchoName(c.Alias))),
			wire.M("input", json.RawMessage(wire.EchoArguments(c.Arguments))),
		}.Bytes())
	}
	return blocks, nil
}

var legalIDs = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,256}$`)

// legalID makes an id of another provider one that this wire takes.
func legalID(id string) string {
	if legalIDs.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "toolu_" + hex.EncodeToString(sum[:])[:24]
}

// textBlocks is a text as a list of one block, and of none if nothing is in it: the
// provider refuses such blocks, even where it wrote them itself.
func textBlocks(text string) []json.RawMessage {
	if wire.Blank(text) {
		return nil
	}
	return []json.RawMessage{textBlock(text)}
}

func textBlock(text string) json.RawMessage {
	return wire.Object{wire.M("type", wire.Quote(blockText)), wire.M("text", wire.Quote(text))}.Bytes()
}
