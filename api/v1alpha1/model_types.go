package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Provider names a wire protocol that Pawl can ask for decisions.
// +kubebuilder:validation:Enum=Anthropic;OpenAI;OpenAIResponses;Gemini;Scripted
type Provider string

const (
	// ProviderAnthropic is the Messages protocol.
	ProviderAnthropic Provider = "Anthropic"
	// ProviderOpenAIResponses is OpenAI's Responses protocol, used without state at the
	// vendor.
	ProviderOpenAIResponses Provider = "OpenAIResponses"
	// ProviderGemini is the protocol of the Gemini API, generateContent.
	ProviderGemini Provider = "Gemini"
	// ProviderOpenAI is the Chat Completions protocol, as spoken by OpenAI and by
	// the many servers compatible with it.
	ProviderOpenAI Provider = "OpenAI"
	// ProviderScripted answers from spec.script and needs no network.
	ProviderScripted Provider = "Scripted"
)

// ModelSpec says where decisions come from.
// +kubebuilder:validation:XValidation:rule="self.provider != 'Scripted' || (has(self.script) && size(self.script) > 0)",message="provider Scripted needs at least one step in script"
// +kubebuilder:validation:XValidation:rule="self.provider != 'Scripted' || !(has(self.endpoint) || has(self.credentialsSecretRef) || has(self.caBundleConfigMapRef) || has(self.parameters) || has(self.platform))",message="provider Scripted uses no network: remove endpoint, credentialsSecretRef, caBundleConfigMapRef, parameters and platform"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.platform.bedrock) || self.provider == 'Anthropic'",message="platform bedrock serves provider Anthropic only"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.platform.vertex) || self.provider in ['Anthropic', 'Gemini']",message="platform vertex serves providers Anthropic and Gemini only"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.platform.azure) || self.provider in ['OpenAI', 'OpenAIResponses']",message="platform azure serves providers OpenAI and OpenAIResponses only"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || !has(self.platform.azure) || has(self.endpoint)",message="platform azure needs endpoint: the root of your resource, such as https://<name>.openai.azure.com"
// +kubebuilder:validation:XValidation:rule="!has(self.platform) || has(self.credentialsSecretRef)",message="platform needs credentialsSecretRef: the operator's own cloud identity is never used"
// +kubebuilder:validation:XValidation:rule="self.provider == 'Scripted' || !has(self.script)",message="script belongs to provider Scripted: remove it or change provider"
// +kubebuilder:validation:XValidation:rule="self.provider == 'Scripted' || has(self.model)",message="set model to the provider's own model name"
type ModelSpec struct {
	// provider is the wire protocol.
	// +required
	Provider Provider `json:"provider"`

	// model is the provider's own model name. Required for every provider but Scripted.
	// +optional
	// +kubebuilder:validation:Pattern=`^[^\s](.*[^\s])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Model string `json:"model,omitempty"`

	// endpoint is the base URL. Appended to it are, for provider OpenAI
	// "/chat/completions", for OpenAIResponses "/responses", for Anthropic
	// "/v1/messages" (without a second "/v1" where it ends in one) and for Gemini
	// "/models/<model>:generateContent". Defaults to the vendor's public root, or the
	// platform's for its region. On platform azure it is the root of your resource, to
	// which the platform's paths are appended.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != '' && size(url(self).getQuery()) == 0 && !self.contains('#') && !self.matches('^[^/]*//[^/]*@')",message="endpoint must be an absolute http or https URL without user, query or fragment"
	// +kubebuilder:validation:XValidation:rule="!isURL(self) || self.matches('^[^/]*//([^/:]+|[[][^/]*[]])(:(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}))?(/|$)')",message="endpoint must have a host, and a port from 1 to 65535 if it has one"
	// +kubebuilder:validation:XValidation:rule="!self.matches('(/chat/completions|/responses|/messages|:generateContent)/?$')",message="endpoint must be the base URL: remove the path of the operation, such as /chat/completions, which is appended to it"
	Endpoint string `json:"endpoint,omitempty"`

	// credentialsSecretRef names the Secret key that holds the API key. It is read
	// when used, so a rotated Secret takes effect; a run that has started keeps the
	// reference, as it keeps the endpoint. Servers without authentication need none. On platform bedrock the value is a Bedrock API key or JSON
	// {"accessKeyId", "secretAccessKey", "sessionToken"}; on vertex a service account's
	// JSON key or an access token; on azure an API key, or "Bearer " and a token.
	// +optional
	CredentialsSecretRef *KeyReference `json:"credentialsSecretRef,omitempty"`

	// caBundleConfigMapRef names the ConfigMap key that holds PEM certificates
	// which are trusted instead of the system's for this endpoint. A run that has
	// started keeps the reference.
	// +optional
	CABundleConfigMapRef *KeyReference `json:"caBundleConfigMapRef,omitempty"`

	// maxOutputTokens bounds one reply. A request asks for the least of this and
	// what is left of the run's token budget.
	// +optional
	// +default=4096
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxOutputTokens int32 `json:"maxOutputTokens,omitempty"`

	// requestTimeoutSeconds bounds one request, from its first byte sent to its
	// last byte read.
	// +optional
	// +default=120
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	RequestTimeoutSeconds int32 `json:"requestTimeoutSeconds,omitempty"`

	// maxAttempts bounds the requests for one decision, restarts of the operator
	// included. What can't succeed by repetition is not repeated.
	// +optional
	// +default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxAttempts int32 `json:"maxAttempts,omitempty"`

	// limits bound the requests to this Model, of all runs and all replicas together.
	// +optional
	Limits *ModelLimits `json:"limits,omitempty"`

	// prices turn tokens into money. A run with limits.maxCost needs them.
	// +optional
	Prices *Prices `json:"prices,omitempty"`

	// keepReasoning keeps the provider's opaque reasoning parts when a finished journal
	// is compacted. Default false.
	// +optional
	KeepReasoning bool `json:"keepReasoning,omitempty"`

	// platform is the cloud that serves the model under its own address and
	// authentication. Default: the vendor itself, or what endpoint names.
	// +optional
	Platform *Platform `json:"platform,omitempty"`

	// parameters are members added to the provider's request unchanged, such as
	// {"service_tier": "auto"}. Members that Pawl sets itself are refused by the
	// operator, which reports them in status.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// script answers the run's n-th decision with its n-th step. A run that asks
	// for more decisions than there are steps ends as ModelError.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Script []ScriptStep `json:"script,omitempty"`
}

// ModelLimits bound the requests to a Model. They hold for the installation: each
// replica has a share of whole requests, and a run is looked after by one that has any.
// Exact while the set of replicas is steady; after a change what is under way already may
// double them. A run that waits for its turn goes on counting as Running.
// +kubebuilder:validation:XValidation:rule="has(self.maxConcurrentRequests) || has(self.requestsPerMinute)",message="set maxConcurrentRequests, requestsPerMinute or both"
type ModelLimits struct {
	// maxConcurrentRequests bounds the requests under way at once. A change counts from
	// the next request on. Default: unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxConcurrentRequests int32 `json:"maxConcurrentRequests,omitempty"`

	// requestsPerMinute bounds the requests begun in a minute, retries included. They are
	// evenly spaced. A change counts from the next request on. Default: unbounded.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerMinute int32 `json:"requestsPerMinute,omitempty"`
}

// Price is US dollars for a million tokens.
// +kubebuilder:validation:Pattern=`^[0-9]{1,6}([.][0-9]{1,6})?$`
// +kubebuilder:validation:MaxLength=13
type Price string

// Prices of a Model, in US dollars for a million tokens, as decimal strings with at
// most six places.
type Prices struct {
	// input is the price of tokens sent that are neither read from nor written to a cache.
	// +required
	Input Price `json:"input"`

	// output is the price of tokens received, reasoning included.
	// +required
	Output Price `json:"output"`

	// cacheRead is the price of tokens read from the provider's cache. Default: input.
	// +optional
	CacheRead Price `json:"cacheRead,omitempty"`

	// cacheWrite is the price of tokens written to the provider's cache. Default: input.
	// +optional
	CacheWrite Price `json:"cacheWrite,omitempty"`
}

// Platform is a cloud that serves a vendor's models.
// +kubebuilder:validation:XValidation:rule="[has(self.bedrock), has(self.vertex), has(self.azure)].filter(x, x).size() == 1",message="set exactly one of bedrock, vertex and azure"
type Platform struct {
	// bedrock is Amazon Bedrock, for provider Anthropic. Models are asked by InvokeModel;
	// by Messages where endpoint ends in /anthropic.
	// +optional
	Bedrock *BedrockPlatform `json:"bedrock,omitempty"`

	// vertex is Google Cloud's Vertex AI, for providers Anthropic and Gemini.
	// +optional
	Vertex *VertexPlatform `json:"vertex,omitempty"`

	// azure is Azure OpenAI, for providers OpenAI and OpenAIResponses. spec.model is then
	// the name of the deployment.
	// +optional
	Azure *AzurePlatform `json:"azure,omitempty"`
}

// BedrockPlatform is Amazon Bedrock.
type BedrockPlatform struct {
	// region that serves the model, such as eu-central-1.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}$`
	// +kubebuilder:validation:MaxLength=32
	Region string `json:"region"`
}

// VertexPlatform is Google Cloud's Vertex AI.
type VertexPlatform struct {
	// project that is charged: its id, such as my-project or example.com:my-project, or
	// its number.
	// +required
	// +kubebuilder:validation:Pattern=`^(([a-z0-9-]+[.])+[a-z]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$|^[0-9]+$`
	// +kubebuilder:validation:MaxLength=128
	Project string `json:"project"`

	// location that serves the model, such as europe-west1, eu or global.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9-]*$`
	// +kubebuilder:validation:MaxLength=32
	Location string `json:"location"`
}

// AzurePlatform is Azure OpenAI.
type AzurePlatform struct {
	// apiVersion is the version of the API, such as 2024-10-21. Default: the versionless
	// API below /openai/v1, to which preview and latest belong, too.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9]{4}-[0-9]{2}-[0-9]{2}(-preview)?|preview|latest)$`
	// +kubebuilder:validation:MaxLength=18
	APIVersion string `json:"apiVersion,omitempty"`
}

// ScriptStep is one scripted decision.
// +kubebuilder:validation:XValidation:rule="[has(self.toolCalls), has(self.final), has(self.finalExpression), has(self.question), has(self.cannotContinue), has(self.raw), has(self.error)].filter(x, x).size() == 1",message="set exactly one of toolCalls, final, finalExpression, question, cannotContinue, raw and error"
type ScriptStep struct {
	// toolCalls proposes a batch of calls.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	ToolCalls []ScriptToolCall `json:"toolCalls,omitempty"`

	// final is the answer that ends the run.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Final string `json:"final,omitempty"`

	// finalExpression is CEL over results, the outputs of the last batch in call
	// order; its value is the answer.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	FinalExpression string `json:"finalExpression,omitempty"`

	// question asks a person.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Question string `json:"question,omitempty"`

	// cannotContinue gives up with a reason.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	CannotContinue string `json:"cannotContinue,omitempty"`

	// raw is a whole Chat Completions response body, read as provider OpenAI
	// would read it.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Raw *runtime.RawExtension `json:"raw,omitempty"`

	// error answers like a provider that failed. The attempt counts; a step with
	// an error answers every attempt at its decision.
	// +optional
	Error *ScriptError `json:"error,omitempty"`

	// delayMilliseconds passes before the step answers. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	DelayMilliseconds int32 `json:"delayMilliseconds,omitempty"`
}

// ScriptToolCall is one proposed call.
type ScriptToolCall struct {
	// tool is the full name, <server>.<tool>. It need not exist: a name that does
	// not is how a test proposes an unknown tool.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Tool string `json:"tool"`

	// arguments of the call. Defaults to {}.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Arguments *runtime.RawExtension `json:"arguments,omitempty"`
}

// ScriptError is a scripted failure of the provider.
type ScriptError struct {
	// status is the HTTP status, classified as provider OpenAI would classify it.
	// +required
	// +kubebuilder:validation:Minimum=400
	// +kubebuilder:validation:Maximum=599
	Status int32 `json:"status"`
}

// ModelStatus is what the operator found about a Model.
type ModelStatus struct {
	// conditions holds Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Model declares where decisions come from: a provider, a model and the limits of
// asking it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=mdl,categories=pawl
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.model`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Model struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says where decisions come from.
	// +required
	Spec ModelSpec `json:"spec"`

	// status is written by the operator.
	// +optional
	Status ModelStatus `json:"status,omitzero"`
}

// ModelList is a list of Models.
// +kubebuilder:object:root=true
type ModelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Model `json:"items"`
}
