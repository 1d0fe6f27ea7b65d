package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// mistake breaks one constraint of a schema in an otherwise good object.
type mistake struct {
	name   string
	object *unstructured.Unstructured
	// want are words that the refusal must have.
	want []string
}

// mistakes makes one mistake for every constraint of a schema, at the first place of an
// example that the constraint applies to.
type mistakes struct {
	made []mistake
	// seen are the places of the schema that some example has.
	seen map[string]bool
	// unknown are constraints that no mistake is known for.
	unknown []string
}

// visit makes the mistakes for one place of an example and all below it.
func (m *mistakes) visit(example *unstructured.Unstructured, schema *apiextensionsv1.JSONSchemaProps, at path) {
	value := at.get(example.Object)
	first := !m.seen[at.general()]
	m.seen[at.general()] = true
	if first {
		m.make(example, schema, at)
	}
	switch value := value.(type) {
	case map[string]any:
		for name := range schema.Properties {
			if _, there := value[name]; there {
				m.visit(example, ptr.To(schema.Properties[name]), at.to(name))
			}
		}
	case []any:
		for i := range value {
			m.visit(example, schema.Items.Schema, at.to(i))
		}
	}
}

// make makes the mistakes for one place.
func (m *mistakes) make(example *unstructured.Unstructured, schema *apiextensionsv1.JSONSchemaProps, at path) {
	add := func(what string, p path, want []string, value ...any) {
		object := example.DeepCopy()
		p.set(object.Object, value...)
		m.made = append(m.made, mistake{name: p.String() + " " + what, object: object, want: append(want, p.String())})
	}
	value := at.get(example.Object)
	wrong := any("some text")
	if schema.Type == "string" {
		wrong = int64(7)
	}
	add("of another type", at, []string{"must be of type " + schema.Type}, wrong)
	for _, name := range schema.Required {
		add("missing", at.to(name), []string{"Required value"})
	}
	if schema.Type == "object" && !ptr.Deref(schema.XPreserveUnknownFields, false) {
		add("is no field", at.to("nonsense"), []string{"unknown field"}, int64(1))
	}
	if schema.MinItems != nil && *schema.MinItems > 0 {
		add("with too few items", at, []string{fmt.Sprintf("should have at least %d items", *schema.MinItems)}, []any{})
	}
	if schema.MaxItems != nil {
		add("with too many items", at, []string{fmt.Sprintf("must have at most %d items", *schema.MaxItems)}, many(value.([]any), *schema))
	}
	if ptr.Deref(schema.XListType, "") == "map" {
		list := value.([]any)
		add("with an item twice", at, []string{"Duplicate value", at.to(len(list)).String()}, append(slices.Clone(list), list[0]))
	}
	if schema.MinLength != nil {
		add("too short", at, []string{fmt.Sprintf("should be at least %d chars long", *schema.MinLength)}, strings.Repeat("a", int(*schema.MinLength)-1))
	}
	if schema.MaxLength != nil {
		add("too long", at, []string{fmt.Sprintf("Too long: may not be more than %d bytes", *schema.MaxLength)}, strings.Repeat("a", int(*schema.MaxLength)+1))
	}
	if schema.Pattern != "" {
		add("of another form", at, []string{"should match '" + schema.Pattern + "'"}, " ?")
	}
	if len(schema.Enum) > 0 {
		add("of another name", at, []string{"Unsupported value", "supported values: " + enumerate(schema.Enum)}, "Nonsense")
	}
	if schema.Minimum != nil {
		add("too small", at, []string{fmt.Sprintf("should be greater than or equal to %d", int64(*schema.Minimum))}, int64(*schema.Minimum)-1)
	}
	if schema.Maximum != nil {
		add("too large", at, []string{fmt.Sprintf("should be less than or equal to %d", int64(*schema.Maximum))}, int64(*schema.Maximum)+1)
	}
	m.checkKnown(schema, at)
}

// many makes a list that is one item too long.
func many(list []any, schema apiextensionsv1.JSONSchemaProps) []any {
	var longer []any
	for i := range *schema.MaxItems + 1 {
		item := runtime.DeepCopyJSONValue(list[0])
		for _, key := range schema.XListMapKeys {
			item.(map[string]any)[key] = fmt.Sprintf("%s-%d", item.(map[string]any)[key], i)
		}
		longer = append(longer, item)
	}
	return longer
}

func enumerate(values []apiextensionsv1.JSON) string {
	var names []string
	for _, value := range values {
		names = append(names, string(value.Raw))
	}
	return strings.Join(names, ", ")
}

// checkKnown notes constraints that make does not know.
func (m *mistakes) checkKnown(schema *apiextensionsv1.JSONSchemaProps, at path) {
	rest := *schema
	for _, known := range []any{
		&rest.Description, &rest.Type, &rest.Format, &rest.Default, &rest.Properties, &rest.Items, &rest.Required,
		&rest.MinItems, &rest.MaxItems, &rest.MinLength, &rest.MaxLength, &rest.Pattern, &rest.Enum, &rest.Minimum, &rest.Maximum,
		&rest.XListType, &rest.XListMapKeys, &rest.XPreserveUnknownFields, &rest.XValidations,
	} {
		reflect.ValueOf(known).Elem().SetZero()
	}
	if text := fmt.Sprintf("%+v", rest); text != fmt.Sprintf("%+v", apiextensionsv1.JSONSchemaProps{}) {
		m.unknown = append(m.unknown, at.String())
	}
}

// places lists every place of a schema, down to where it says nothing more.
func places(schema *apiextensionsv1.JSONSchemaProps, at string) []string {
	found := []string{at}
	for name := range schema.Properties {
		found = append(found, places(ptr.To(schema.Properties[name]), at+"."+name)...)
	}
	if schema.Items != nil {
		found = append(found, places(schema.Items.Schema, at+"[]")...)
	}
	return found
}

var _ = DescribeTable("Every constraint of a schema is enforced, in words that name the place",
	func(ctx SpecContext, plural string, names ...string) {
		spec := ptr.To(definition(plural).Properties["spec"])
		all := mistakes{seen: map[string]bool{}}
		for _, name := range names {
			good := example(name)
			Expect(create(ctx, good)).To(Succeed(), name)
			all.visit(good, spec, path{"spec"})
			without := good.DeepCopy()
			delete(without.Object, "spec")
			all.made = append(all.made, mistake{name: "spec missing", object: without, want: []string{"spec: Required value"}})
		}
		Expect(all.unknown).To(BeEmpty(), "places with constraints that this test can't break yet")
		for _, place := range places(spec, "spec") {
			Expect(all.seen).To(HaveKey(place), "an example sets every field")
		}
		for _, m := range all.made {
			err := create(ctx, m.object)
			GinkgoWriter.Printf("%s\n    %.300v\n", m.name, err)
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				AddReportEntry(m.name, err)
				Fail(m.name + " was not refused as invalid")
			}
			for _, words := range m.want {
				Expect(err).To(MatchError(ContainSubstring(words)), m.name)
			}
		}
		GinkgoWriter.Printf("%d mistakes were refused\n", len(all.made))
		Expect(len(all.made)).To(BeNumerically(">", 50))
	},
	Entry("AgentRun", "agentruns", "agentrun"),
	Entry("Model", "models", "model-openai", "model-bedrock", "model-vertex", "model-scripted"),
	Entry("ToolPolicy", "toolpolicies", "toolpolicy"),
)
