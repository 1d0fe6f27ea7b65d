package journal

import "encoding/json"

// Model is the frozen part of a Model.
type Model struct {
	Name                  string          `json:"name"`
	Provider              string          `json:"provider"`
	Model                 string          `json:"model,omitempty"`
	Endpoint              string          `json:"endpoint,omitempty"`
	MaxOutputTokens       int32           `json:"maxOutputTokens"`
	RequestTimeoutSeconds int32           `json:"requestTimeoutSeconds"`
	MaxAttempts           int32           `json:"maxAttempts"`
	Parameters            json.RawMessage `json:"parameters,omitempty"`
	Platform              *Platform       `json:"platform,omitempty"`
	Prices                *Prices         `json:"prices,omitempty"`
	KeepReasoning         bool            `json:"keepReasoning,omitempty"`
	// References say where the credentials and the CA bundle of Endpoint are. Nil in
	// journals of builds that did not freeze them.
	References *ModelReferences `json:"references,omitempty"`
}

// ModelReferences name what is read each time a model is asked: whose key goes to an
// endpoint is frozen with the endpoint, what the key is, is not.
type ModelReferences struct {
	// Credentials is in a Secret, CABundle in a ConfigMap; nil for none.
	Credentials *KeyReference `json:"credentials,omitempty"`
	CABundle    *KeyReference `json:"caBundle,omitempty"`
}

// KeyReference is a key of a Secret or ConfigMap of the run's namespace.
type KeyReference struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Platform is the cloud that serves a model.
type Platform struct {
	// Name is bedrock, vertex or azure; the other members are those it has.
	Name       string `json:"name"`
	Region     string `json:"region,omitempty"`
	Project    string `json:"project,omitempty"`
	Location   string `json:"location,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// Usage counts tokens.
type Usage struct {
	InputTokens      int64 `json:"inputTokens"`
	OutputTokens     int64 `json:"outputTokens"`
	CacheReadTokens  int64 `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens int64 `json:"cacheWriteTokens,omitempty"`
	ReasoningTokens  int64 `json:"reasoningTokens,omitempty"`
	// Estimated is true when the provider did not report.
	Estimated bool `json:"estimated,omitempty"`
}

// Total is what counts against the token budget.
func (u Usage) Total() int64 { return u.InputTokens + u.OutputTokens }

// Add returns the sum; it is estimated when either part is.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		InputTokens:      u.InputTokens + v.InputTokens,
		OutputTokens:     u.OutputTokens + v.OutputTokens,
		CacheReadTokens:  u.CacheReadTokens + v.CacheReadTokens,
		CacheWriteTokens: u.CacheWriteTokens + v.CacheWriteTokens,
		ReasoningTokens:  u.ReasoningTokens + v.ReasoningTokens,
		Estimated:        u.Estimated || v.Estimated,
	}
}

// ModelFailed is a request that brought no decision.
type ModelFailed struct {
	Attempt int32  `json:"attempt"`
	Class   string `json:"class"`
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	// RetryAfterMillis is what the provider asked for.
	RetryAfterMillis int64 `json:"retryAfterMillis,omitempty"`
	DurationMillis   int64 `json:"durationMillis,omitempty"`
	// Usage is the estimate charged when the request may have cost something.
	Usage Usage `json:"usage,omitzero"`
	// TooLong is what a request was estimated at that the provider found too long.
	TooLong int64 `json:"tooLong,omitempty"`
}

// ContextReduced shortens the conversation from here on: turns up to Through are told in
// the first message instead of being replayed, and those before FullFrom with the
// beginnings of their results only.
type ContextReduced struct {
	Through  int32 `json:"through"`
	FullFrom int32 `json:"fullFrom"`
}

// ContextSummarised replaces the turns up to Through by a summary that the model wrote
// under the run's own budget. An empty Text means that it wrote none.
type ContextSummarised struct {
	Through        int32  `json:"through"`
	Text           string `json:"text,omitempty"`
	StopReason     string `json:"stopReason,omitempty"`
	Usage          Usage  `json:"usage"`
	Attempt        int32  `json:"attempt"`
	DurationMillis int64  `json:"durationMillis"`
	// MaxOutputTokens is the request's output limit where a budget lowered it.
	MaxOutputTokens int32 `json:"maxOutputTokens,omitempty"`
	// Clipped and CostClipped are true for no summary that was cut off by what was left of
	// the token or cost budget.
	Clipped       bool   `json:"clipped,omitempty"`
	CostClipped   bool   `json:"costClipped,omitempty"`
	RequestDigest string `json:"requestDigest"`
	Projection    int    `json:"projection"`
	RequestID     string `json:"requestID,omitempty"`
}
