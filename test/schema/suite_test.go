// Package schema holds the tests of what people may write: which mistakes in an AgentRun,
// a Model or a ToolPolicy the API server refuses, which the operator reports, and whether
// either says what to change.
package schema

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pawl-run/pawl/test/controlplane"
	"github.com/pawl-run/pawl/test/environment"
)

var (
	env *environment.Environment
	// strict is the administrator with strict field validation, as kubectl has it.
	strict client.Client
	// operator is the operator's own account, which alone may write the status of runs.
	operator client.Client
)

func TestSchema(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Schema")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	env, err = environment.Start(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	strict = client.WithFieldValidation(env.Admin, metav1.FieldValidationStrict)
	config, err := env.Plane.ServiceAccountConfig(ctx, environment.Namespace, environment.Account)
	Expect(err).NotTo(HaveOccurred())
	operator, err = client.New(config, client.Options{Scheme: env.Admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
})

var _ = ReportAfterEach(func(report SpecReport) {
	if report.Failed() && env != nil {
		log, err := os.ReadFile(env.OperatorLog())
		const tail = 4096
		GinkgoWriter.Printf("The operator's log ends with (%v):\n%s\n", err, log[max(0, len(log)-tail):])
	}
})

// example reads an object from testdata.
func example(name string) *unstructured.Unstructured {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	return parse(string(text))
}

// parse reads an object from YAML. Numbers are int64 or float64, as in a client.
func parse(text string) *unstructured.Unstructured {
	GinkgoHelper()
	data, err := yaml.YAMLToJSON([]byte(text))
	Expect(err).NotTo(HaveOccurred())
	object := &unstructured.Unstructured{}
	Expect(object.UnmarshalJSON(data)).To(Succeed())
	return object
}

// definition reads a generated custom resource definition and gives its schema.
func definition(plural string) *apiextensionsv1.JSONSchemaProps {
	GinkgoHelper()
	text, err := os.ReadFile(definitionFile(plural))
	Expect(err).NotTo(HaveOccurred())
	var crd apiextensionsv1.CustomResourceDefinition
	Expect(yaml.UnmarshalStrict(text, &crd)).To(Succeed())
	Expect(crd.Spec.Versions).To(HaveLen(1))
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}

func definitionFile(plural string) string {
	GinkgoHelper()
	root, err := controlplane.Root()
	Expect(err).NotTo(HaveOccurred())
	return filepath.Join(root, "config", "crd", "bases", "pawl.run_"+plural+".yaml")
}

// create asks the API server for a verdict on an object and stores nothing.
func create(ctx context.Context, object *unstructured.Unstructured) error {
	return strict.Create(ctx, object.DeepCopy(), client.DryRunAll)
}

// path leads to a place in an object: names of members and indexes of lists.
type path []any

// parsePath reads a path as people write it, such as spec.rules[0].name.
func parsePath(text string) path {
	var p path
	for _, step := range regexp.MustCompile(`[^.\[\]]+`).FindAllString(text, -1) {
		if n, err := strconv.Atoi(step); err == nil {
			p = append(p, n)
		} else {
			p = append(p, step)
		}
	}
	return p
}

// String writes the path as the API server does.
func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, step)
		}
	}
	return b.String()
}

// general is the path with every index left out, which names a place in the schema.
func (p path) general() string {
	return regexp.MustCompile(`\[\d+\]`).ReplaceAllString(p.String(), "[]")
}

func (p path) to(step any) path { return append(p[:len(p):len(p)], step) }

// get reads a place in an object, nil where there is none.
func (p path) get(object any) any {
	for _, step := range p {
		switch step := step.(type) {
		case int:
			list, _ := object.([]any)
			if step >= len(list) {
				return nil
			}
			object = list[step]
		case string:
			members, _ := object.(map[string]any)
			object = members[step]
		}
	}
	return object
}

// set changes a place in an object whose parent is there; without a value it removes the
// member.
func (p path) set(object any, value ...any) {
	GinkgoHelper()
	parent, last := p[:len(p)-1].get(object), p[len(p)-1]
	switch parent := parent.(type) {
	case []any:
		parent[last.(int)] = value[0]
	case map[string]any:
		if len(value) == 0 {
			delete(parent, last.(string))
		} else {
			parent[last.(string)] = runtime.DeepCopyJSONValue(value[0])
		}
	default:
		Fail(fmt.Sprintf("there is nothing at %s to change %v in", p[:len(p)-1], last))
	}
}
