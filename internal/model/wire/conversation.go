package wire

import (
	"errors"
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// Blank reports whether a text has nothing in it that anybody could read.
func Blank(text string) bool { return strings.TrimSpace(text) == "" }

// Spoken is what of a conversation goes to a provider. Messages that say nothing, such as
// what is left of a reply that was cut off before its first word, are left out: some
// providers refuse them, and one that is refused ends the run. What remains has to begin
// with the user.
func Spoken(messages []model.Message) ([]model.Message, error) {
	var spoken []model.Message
	for _, m := range messages {
		if !silent(m) {
			spoken = append(spoken, m)
		}
	}
	if len(spoken) == 0 || spoken[0].Role != model.RoleUser {
		return nil, errors.New("a conversation needs a text of the user at its beginning")
	}
	return spoken, nil
}

// silent is never true for a result: its call waits for it.
func silent(m model.Message) bool {
	switch m.Role {
	case model.RoleUser:
		return Blank(m.Text)
	case model.RoleAssistant:
		return len(m.Raw) == 0 && len(m.Calls) == 0 && Blank(m.Text)
	default:
		return false
	}
}
