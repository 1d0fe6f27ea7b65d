package v1alpha1

// LocalReference names an object in the same namespace.
type LocalReference struct {
	// name of the referenced object.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="this can't be the name of an object: use lower case letters, digits, '-' and '.', with a letter or digit at both ends"
	Name string `json:"name"`
}

// KeyReference names one key of a Secret or ConfigMap in the same namespace.
type KeyReference struct {
	// name of the Secret or ConfigMap.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="this can't be the name of an object: use lower case letters, digits, '-' and '.', with a letter or digit at both ends"
	Name string `json:"name"`

	// key inside it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="this can't be a key of a Secret or ConfigMap: use letters, digits, '-', '_' and '.'"
	Key string `json:"key"`
}

// HeaderFromSecret sets one HTTP header from a Secret. The Secret is read each
// time the header is needed, so that a rotated value takes effect at once.
type HeaderFromSecret struct {
	// name of the header. Headers that Pawl sets itself (Content-Type, Accept,
	// Host, Content-Length, Idempotency-Key, Traceparent and every Pawl- or Mcp-
	// header) are refused.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9-]+$')",message="this can't be the name of a header: use letters, digits and '-'"
	// +kubebuilder:validation:XValidation:rule="!self.lowerAscii().matches('^(content-type|content-length|accept|host|connection|transfer-encoding|idempotency-key|traceparent|tracestate|pawl-.*|mcp-.*)$')",message="this header is set by Pawl itself; choose another name"
	Name string `json:"name"`

	// secretKeyRef names the Secret and the key that holds the whole header value.
	// +required
	SecretKeyRef KeyReference `json:"secretKeyRef"`
}

// TokenAuthentication is how the operator shows an authorization server who it is.
// +kubebuilder:validation:Enum=Basic;Body
type TokenAuthentication string

const (
	// TokenAuthenticationBasic sends client id and secret as HTTP Basic.
	TokenAuthenticationBasic TokenAuthentication = "Basic"
	// TokenAuthenticationBody sends them in the request's body.
	TokenAuthenticationBody TokenAuthentication = "Body"
)

// OAuthClient gets access tokens by the client credentials grant (RFC 6749, section 4.4)
// and sends them as "Authorization: Bearer". A token is kept in memory until shortly
// before it ends, and dropped when the service answers 401.
type OAuthClient struct {
	// tokenURL is the token endpoint of the authorization server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() in ['http', 'https'] && url(self).getHost() != '' && !self.contains('#') && !self.contains('@')",message="tokenURL must be an absolute http or https URL without user or fragment"
	TokenURL string `json:"tokenURL"`

	// clientIDSecretRef names the Secret and the key that holds the client id.
	// +required
	ClientIDSecretRef KeyReference `json:"clientIDSecretRef"`

	// clientSecretSecretRef names the Secret and the key that holds the client secret.
	// +required
	ClientSecretSecretRef KeyReference `json:"clientSecretSecretRef"`

	// scopes asked for. Without any the authorization server gives its default.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:XValidation:rule="self.matches(r'^[\\x21\\x23-\\x5B\\x5D-\\x7E]+$')",message="a scope is printable ASCII without spaces, quotes and backslashes"
	Scopes []string `json:"scopes,omitempty"`

	// resource that the token is for (RFC 8707). MCP servers expect their own URL here;
	// without it none is named.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Resource string `json:"resource,omitempty"`

	// authentication is how client id and secret are sent.
	// +optional
	// +default="Basic"
	Authentication TokenAuthentication `json:"authentication,omitempty"`

	// caBundleConfigMapRef names the ConfigMap key that holds PEM certificates which
	// are trusted instead of the system's for the authorization server.
	// +optional
	CABundleConfigMapRef *KeyReference `json:"caBundleConfigMapRef,omitempty"`
}
