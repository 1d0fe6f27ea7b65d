package wire

import (
	"strings"

	"github.com/pawl-run/pawl/internal/model"
)

// telling is how many characters of a credential in a row are too many to be repeated.
// Fewer come about by chance.
const telling = 8

// WithoutSecret drops a word that holds a piece of a credential: some servers quote what
// they were sent, whole, cut, or with something around it. What is shorter than a piece is
// no secret worth the name.
func WithoutSecret(word, credential string) string {
	if word == credential || sharesPiece(strings.ToLower(word), strings.ToLower(credential)) {
		return ""
	}
	return word
}

func sharesPiece(word, credential string) bool {
	for end := telling; end <= len(word); end++ {
		if strings.Contains(credential, word[end-telling:end]) {
			return true
		}
	}
	return false
}

// Scrub drops from a reply the words in which some servers quote a credential.
func Scrub(reply *model.Reply, credential string) {
	reply.RequestID = WithoutSecret(reply.RequestID, credential)
	reply.StopReason = WithoutSecret(reply.StopReason, credential)
}

// ScrubError drops from an error the code in which some servers quote a credential, and
// puts plain words in the place of a detail that does.
func ScrubError(failure *model.Error, credential string) {
	failure.Code = WithoutSecret(failure.Code, credential)
	if WithoutSecret(failure.Detail, credential) == "" {
		failure.Detail = "the provider answered with an error"
	}
}
