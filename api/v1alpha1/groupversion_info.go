// Package v1alpha1 holds the API of Pawl: AgentRun, ToolPolicy and Model.
//
// The package imports apimachinery only, so that clients can depend on it cheaply.
//
// +kubebuilder:object:generate=true
// +groupName=pawl.run
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version that every kind of this package belongs to.
	GroupVersion = schema.GroupVersion{Group: "pawl.run", Version: "v1alpha1"}

	// SchemeBuilder collects the functions that add this package's types to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds this package's types to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&AgentRun{}, &AgentRunList{},
		&Model{}, &ModelList{},
		&ToolPolicy{}, &ToolPolicyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
