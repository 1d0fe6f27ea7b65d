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
