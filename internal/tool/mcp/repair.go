package mcptool

import (
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessionVersions are the revisions with sessions, newest first.
var sessionVersions = []string{sessionVersion, "2025-06-18", "2025-03-26"}

// repair looks whether an answer says that the server does not know what was asked in:
// this session, or this revision. If so it changes what the visit takes the server to
// speak, and the request may be made again, if it may be made twice or never ran.
func (v *visit) repair(current *session, a answer) bool {
	switch {
	case a.code() == codeUnsupportedVersion:
		return v.negotiate(current, a)
	case current.id != "":
		// By the book a session that is gone is a 404. In the wild it is a 400 as well.
		if a.status() != http.StatusNotFound && a.status() != http.StatusBadRequest {
			return false
		}
		v.forget(current)
		return true
	case current.modern() && a.otherEra(current.known):
		v.version = sessionVersion
		return true
	}
	return false
}

// otherEra is true for an answer that no server of the current revision gives to a request
// of that revision. Of a server that is known to speak it more is believed: an error that
// names the request is then only an error.
func (a answer) otherEra(known bool) bool {
	switch status := a.status(); {
	case a.modernError():
		return false
	case known && a.failure != nil && !a.unaddressed && (a.code() < -32019 || a.code() > -32000):
		return false
	case status >= 200 && status <= 299:
		return a.failure != nil && a.result == nil
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired,
		status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
		return false
	default:
		return status >= 400 && status <= 499
	}
}

// modernError is true for the errors by which a server of the current revision is known.
func (a answer) modernError() bool {
	switch a.code() {
	case codeHeaderMismatch, codeMissingCapability, codeUnsupportedVersion:
		return true
	case codeMethodNotFound:
		return a.status() == http.StatusNotFound
	}
	return false
}

// neverRan says whether an answer that is no success proves that the request did nothing:
// the server knew no such session or address, no such revision, found headers that do
// not fit, or refused what came before it took it for a request.
func (a answer) neverRan() bool {
	switch a.code() {
	case codeUnsupportedVersion, codeHeaderMismatch:
		return true
	}
	return a.status() == http.StatusNotFound || a.failure != nil && a.unaddressed
}

// negotiate takes a revision that both sides speak, unless that has failed already.
func (v *visit) negotiate(current *session, a answer) bool {
	data, _ := a.failure["data"].(map[string]any)
	listed, _ := data["supported"].([]any)
	spoken := func(version string) bool { return slices.Contains(listed, any(version)) }
	if current.modern() && spoken(modernVersion) {
		return true
	}
	for _, version := range sessionVersions {
		if spoken(version) && (current.modern() || version < current.version) {
			v.version = version
			return true
		}
	}
	return false
}

// capabilities are those that the server was told of: there are none in the older
// revisions, where a server would ask in the middle of an answer.
func (v *visit) capabilities() Capabilities {
	if v.version < modernVersion {
		return Capabilities{}
	}
	return v.declared
}

// clientCapabilities are what is declared with every request of the current revision.
func (c Capabilities) clientCapabilities() map[string]any {
	declared := map[string]any{}
	if c.Elicitation {
		declared["elicitation"] = map[string]any{"form": map[string]any{}}
	}
	if c.Tasks {
		declared["extensions"] = map[string]any{tasksExtension: map[string]any{}}
	}
	return declared
}

const (
	clientName     = "pawl"
	clientVersion  = "v1alpha1"
	tasksExtension = "io.modelcontextprotocol/tasks"
)

// meta is what every request of the session's revision carries.
func (v *visit) meta(current *session) map[string]any {
	if !current.modern() {
		return map[string]any{}
	}
	return map[string]any{
		mcp.MetaKeyProtocolVersion:    current.version,
		mcp.MetaKeyClientInfo:         map[string]any{"name": clientName, "version": clientVersion},
		mcp.MetaKeyClientCapabilities: v.declared.clientCapabilities(),
	}
}
