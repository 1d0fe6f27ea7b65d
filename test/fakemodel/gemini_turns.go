package fakemodel

import (
	"fmt"
	"slices"
)

// checkRoles checks who speaks when, and what each may say.
func (g *geminiRequest) checkRoles(*Request) string {
	for i, c := range g.contents {
		switch {
		case c.Role != "user" && c.Role != "model":
			return fmt.Sprintf("contents[%d] has an unknown role", i)
		case i == 0 && c.Role != "user":
			return "the first content does not come from the user"
		case c.Role == "model" && g.contents[i-1].Role == "model":
			return fmt.Sprintf("contents[%d] comes from the model, like the one before", i)
		}
		for _, p := range c.Parts {
			if p.FunctionCall != nil && c.Role != "model" {
				return fmt.Sprintf("contents[%d] has a call of the user", i)
			}
			if p.FunctionResponse != nil && c.Role != "user" {
				return fmt.Sprintf("contents[%d] has a result of the model", i)
			}
		}
	}
	if g.contents[len(g.contents)-1].Role != "user" {
		return "the last content does not come from the user"
	}
	return ""
}

func (c GeminiContent) calls() []GeminiFunctionCall {
	var calls []GeminiFunctionCall
	for _, p := range c.Parts {
		if p.FunctionCall != nil {
			calls = append(calls, *p.FunctionCall)
		}
	}
	return calls
}

// checkPairing checks that the calls of a content are answered in the next one, all of
// them and nothing else, each in its place.
func (g *geminiRequest) checkPairing(*Request) string {
	var open []GeminiFunctionCall
	for i, c := range g.contents {
		var results []GeminiFunctionResponse
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				results = append(results, *p.FunctionResponse)
			}
		}
		if len(results) != len(open) {
			return fmt.Sprintf("contents[%d] has %d results for %d calls", i, len(results), len(open))
		}
		if len(results) > 0 && len(results) != len(c.Parts) {
			return fmt.Sprintf("contents[%d] has something beside results", i)
		}
		for j, result := range results {
			if result.Name != open[j].Name {
				return fmt.Sprintf("contents[%d].parts[%d] has the result of another function than the call in its place", i, j)
			}
			if result.ID != open[j].ID {
				return fmt.Sprintf("contents[%d].parts[%d] has another id than the call in its place", i, j)
			}
		}
		open = c.calls()
		ids := map[string]bool{}
		for _, call := range open {
			if call.ID != "" && ids[call.ID] {
				return fmt.Sprintf("contents[%d] has two calls with one id", i)
			}
			ids[call.ID] = true
		}
	}
	return ""
}

// checkSigned checks that the first call of each step is signed, for models that ask for it.
func (g *geminiRequest) checkSigned(*Request) string {
	if !signing.MatchString(g.model) {
		return ""
	}
	for i, c := range g.contents {
		first := slices.IndexFunc(c.Parts, func(p GeminiPart) bool { return p.FunctionCall != nil })
		if first >= 0 && c.Parts[first].ThoughtSignature == "" {
			return fmt.Sprintf("contents[%d]: function call is missing a thought_signature", i)
		}
	}
	return ""
}

func (g *geminiRequest) checkOffered(*Request) string {
	for i, c := range g.contents {
		for _, call := range c.calls() {
			if !slices.ContainsFunc(g.tools, func(f GeminiFunction) bool { return f.Name == call.Name }) {
				return fmt.Sprintf("contents[%d] calls %s, which is not offered", i, call.Name)
			}
		}
	}
	return ""
}
