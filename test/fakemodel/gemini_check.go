package fakemodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// skipSignature is what the vendor documents for calls that its model did not make.
const skipSignature = "skip_thought_signature_validator"

var (
	geminiName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)
	// signing models refuse the first call of a step without a signature.
	signing = regexp.MustCompile(`^gemini-([3-9]|[1-9][0-9])([^0-9]|$)`)

	// geminiMembers are those that the vendor's objects have: it refuses all others.
	geminiMembers = map[string][]string{
		"the request": {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent", "labels"},
		"generationConfig": {"stopSequences", "responseMimeType", "responseSchema", "responseJsonSchema", "responseModalities", "candidateCount",
			"maxOutputTokens", "temperature", "topP", "topK", "seed", "presencePenalty", "frequencyPenalty", "responseLogprobs", "logprobs", "thinkingConfig"},
		"content":          {"role", "parts"},
		"part":             {"text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData", "executableCode", "codeExecutionResult"},
		"functionCall":     {"id", "name", "args"},
		"functionResponse": {"id", "name", "response"},
		"function":         {"name", "description", "parameters", "parametersJsonSchema"},
		"tool":             {"functionDeclarations"},
		"toolConfig":       {"functionCallingConfig"},
	}
)

// foreign is a member that the vendor does not know, or why the object can't be read.
func foreign(kind string, raw json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return kind + " is not an object"
	}
	for name := range members {
		if !slices.Contains(geminiMembers[kind], name) {
			return fmt.Sprintf("%s has the unknown member %q", kind, name)
		}
	}
	return ""
}

// geminiRequest is a request body.
type geminiRequest struct {
	members  map[string]json.RawMessage
	model    string
	system   GeminiContent
	contents []GeminiContent
	tools    []GeminiFunction
}

// Read implements Wire.
func (g gemini) Read(r *Request, options Options) string {
	parsed := &geminiRequest{model: g.modelOf(r.URL.Path)}
	checks := []func(*Request) string{parsed.parse, parsed.checkSettings, parsed.readTools, parsed.checkRoles, parsed.checkPairing, parsed.checkSigned}
	if options.RequireOfferedCalls {
		checks = append(checks, parsed.checkOffered)
	}
	for _, c := range checks {
		if problem := c(r); problem != "" {
			return problem
		}
	}
	parsed.describe(r)
	return ""
}

// parse reads the body, and its pieces for comparing.
func (g *geminiRequest) parse(r *Request) string {
	if r.URL.RawQuery != "" {
		return "the URL has a query: the key belongs in a header, and nothing else is asked for"
	}
	if json.Unmarshal(r.Body, &g.members) != nil {
		return "the body is not a JSON object"
	}
	if problem := foreign("the request", r.Body); problem != "" {
		return problem
	}
	var contents []json.RawMessage
	if json.Unmarshal(g.members["contents"], &contents) != nil || len(contents) == 0 {
		return "contents is not a list with at least one content"
	}
	for i, raw := range contents {
		c, parts, problem := readGeminiContent(raw)
		if problem != "" {
			return fmt.Sprintf("contents[%d]: %s", i, problem)
		}
		g.contents = append(g.contents, c)
		spoken := c.Role == "model"
		r.Pieces = append(r.Pieces, Piece{Text: canonical(raw), Turn: spoken, Assistant: spoken, Seals: geminiSeals(parts)})
	}
	if system, ok := g.members["systemInstruction"]; ok {
		var problem string
		if g.system, _, problem = readGeminiContent(system); problem != "" {
			return "systemInstruction: " + problem
		}
	}
	r.Head = canonical(g.members["systemInstruction"]) + canonical(g.members["tools"]) + canonical(g.members["toolConfig"])
	return ""
}

// readGeminiContent reads a content, each part by itself.
func readGeminiContent(raw json.RawMessage) (c GeminiContent, parts []json.RawMessage, problem string) {
	if problem := foreign("content", raw); problem != "" {
		return c, nil, problem
	}
	var members struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	}
	if json.Unmarshal(raw, &members) != nil {
		return c, nil, "it has members of the wrong type"
	}
	if len(members.Parts) == 0 {
		return c, nil, "it has no parts"
	}
	c.Role = members.Role
	for i, item := range members.Parts {
		part, problem := readGeminiPart(item)
		if problem != "" {
			return c, nil, fmt.Sprintf("parts[%d]: %s", i, problem)
		}
		c.Parts = append(c.Parts, part)
	}
	return c, members.Parts, ""
}

func readGeminiPart(raw json.RawMessage) (GeminiPart, string) {
	var p GeminiPart
	if problem := foreign("part", raw); problem != "" {
		return p, problem
	}
	if json.Unmarshal(raw, &p) != nil || json.Unmarshal(raw, &p.members) != nil {
		return p, "it has members of the wrong type"
	}
	data := 0
	for name := range p.members {
		if name != "thought" && name != "thoughtSignature" {
			data++
		}
	}
	_, isText := p.members["text"]
	_, isCall := p.members["functionCall"]
	_, isResult := p.members["functionResponse"]
	_, signed := p.members["thoughtSignature"]
	switch {
	case data != 1:
		return p, "it has to have exactly one member with data"
	case isText && p.Text == "" && !signed:
		return p, "it is empty text"
	case signed && !isBase64(p.ThoughtSignature):
		return p, "its signature is not base64"
	case isCall:
		return p, checkGeminiCall(p)
	case isResult:
		return p, checkGeminiResult(p)
	default:
		return p, ""
	}
}

var base64Text = regexp.MustCompile(`^[A-Za-z0-9+/_-]+={0,2}$`)

func isBase64(text string) bool { return base64Text.MatchString(text) }

func checkGeminiCall(p GeminiPart) string {
	var args map[string]json.RawMessage
	switch problem := foreign("functionCall", p.members["functionCall"]); {
	case problem != "":
		return problem
	case !geminiName.MatchString(p.FunctionCall.Name):
		return "its call has an illegal name"
	case len(p.FunctionCall.Args) > 0 && json.Unmarshal(p.FunctionCall.Args, &args) != nil:
		return "its call has args that are no object"
	}
	return ""
}

func checkGeminiResult(p GeminiPart) string {
	switch problem := foreign("functionResponse", p.members["functionResponse"]); {
	case problem != "":
		return problem
	case p.FunctionResponse.Name == "":
		return "its result has no name"
	case p.FunctionResponse.Response == nil:
		return "its result has no response"
	}
	_, output := p.FunctionResponse.Response["output"]
	_, failed := p.FunctionResponse.Response["error"]
	if output == failed || len(p.FunctionResponse.Response) != 1 {
		return "its result is neither an output nor an error"
	}
	return ""
}

// checkSettings checks what is set beside the conversation.
func (g *geminiRequest) checkSettings(*Request) string {
	if raw, ok := g.members["generationConfig"]; ok {
		if problem := foreign("generationConfig", raw); problem != "" {
			return problem
		}
		var config struct {
			MaxOutputTokens *int64 `json:"maxOutputTokens"`
			CandidateCount  *int64 `json:"candidateCount"`
		}
		switch {
		case json.Unmarshal(raw, &config) != nil:
			return "generationConfig has members of the wrong type"
		case config.MaxOutputTokens != nil && *config.MaxOutputTokens < 1:
			return "maxOutputTokens is not positive"
		case config.CandidateCount != nil && *config.CandidateCount != 1:
			return "this server gives one candidate"
		}
	}
	raw, ok := g.members["toolConfig"]
	if !ok {
		return ""
	}
	var config struct {
		Calling struct {
			Mode string `json:"mode"`
		} `json:"functionCallingConfig"`
	}
	switch problem := foreign("toolConfig", raw); {
	case problem != "":
		return problem
	case json.Unmarshal(raw, &config) != nil || !slices.Contains([]string{"AUTO", "ANY", "NONE", "VALIDATED"}, config.Calling.Mode):
		return "functionCallingConfig has no mode"
	case g.members["tools"] == nil:
		return "toolConfig is allowed only with tools"
	}
	return ""
}

// readTools reads the offered functions.
func (g *geminiRequest) readTools(*Request) string {
	raw, ok := g.members["tools"]
	if !ok {
		return ""
	}
	var tools []json.RawMessage
	if json.Unmarshal(raw, &tools) != nil || len(tools) == 0 {
		return "tools is not a list with at least one tool"
	}
	for _, raw := range tools {
		var tool struct {
			Functions []json.RawMessage `json:"functionDeclarations"`
		}
		if problem := foreign("tool", raw); problem != "" {
			return problem
		}
		if json.Unmarshal(raw, &tool) != nil || len(tool.Functions) == 0 {
			return "a tool has no functions"
		}
		for _, raw := range tool.Functions {
			if problem := g.readFunction(raw); problem != "" {
				return problem
			}
		}
	}
	return ""
}

func (g *geminiRequest) readFunction(raw json.RawMessage) string {
	var f GeminiFunction
	if problem := foreign("function", raw); problem != "" {
		return problem
	}
	if json.Unmarshal(raw, &f) != nil {
		return "a function has members of the wrong type"
	}
	schema := f.ParametersJSONSchema
	var root struct {
		Type string `json:"type"`
	}
	switch {
	case !geminiName.MatchString(f.Name):
		return "a function has an illegal name"
	case slices.ContainsFunc(g.tools, func(other GeminiFunction) bool { return other.Name == f.Name }):
		return "a function has the name of an earlier one"
	case f.Parameters != nil && schema != nil:
		return "a function has its parameters in two languages"
	case schema != nil && (json.Unmarshal(schema, &root) != nil || root.Type != "object"):
		return "a function has parameters that are no object"
	}
	g.tools = append(g.tools, f)
	return ""
}

// describe says what the request is about in the words that all wires share.
func (g *geminiRequest) describe(r *Request) {
	r.Model, r.System = g.model, g.system.Text()
	for _, f := range g.tools {
		schema := f.ParametersJSONSchema
		if schema == nil {
			schema = f.Parameters
		}
		r.Tools = append(r.Tools, Tool{Name: f.Name, Description: f.Description, Schema: schema})
	}
	for _, c := range g.contents {
		r.Messages = append(r.Messages, messagesOf(c)...)
	}
}

// messagesOf are what a content says: one message, or the results of calls.
func messagesOf(c GeminiContent) []Message {
	var results []Message
	message := Message{Role: "user", Text: c.Text()}
	if c.Role == "model" {
		message.Role = "assistant"
	}
	for _, p := range c.Parts {
		switch {
		case p.FunctionCall != nil:
			message.Calls = append(message.Calls, Call{ID: p.FunctionCall.ID, Name: p.FunctionCall.Name, Arguments: string(p.FunctionCall.Args)})
		case p.FunctionResponse != nil:
			result := Message{Role: "tool", CallID: p.FunctionResponse.ID}
			text, ok := p.FunctionResponse.Response["output"]
			if !ok {
				text, result.Failed = p.FunctionResponse.Response["error"], true
			}
			if result.Text, ok = text.(string); !ok {
				result.Text = string(encode(text))
			}
			results = append(results, result)
		}
	}
	if len(results) > 0 {
		return results
	}
	return []Message{message}
}
