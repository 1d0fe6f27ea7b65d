package schema

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// change sets the place of an object that a path names to a value written as YAML, or
// removes it.
type change struct{ at, value string }

const removed = "(removed)"

// rule is one CEL rule of a definition: where it stands and what it says.
func ruleName(plural, place, message string) string { return plural + " " + place + ": " + message }

// rulesOf lists the rules of a schema that look at one version of the object alone.
func rulesOf(plural string, schema *apiextensionsv1.JSONSchemaProps, at string) []string {
	var rules []string
	for _, rule := range schema.XValidations {
		if !strings.Contains(rule.Rule, "oldSelf") {
			rules = append(rules, ruleName(plural, at, rule.Message))
		}
	}
	for name := range schema.Properties {
		rules = append(rules, rulesOf(plural, ptr.To(schema.Properties[name]), at+"."+name)...)
	}
	if schema.Items != nil {
		rules = append(rules, rulesOf(plural, schema.Items.Schema, at+"[]")...)
	}
	return rules
}

var _ = Describe("Rules", Ordered, func() {
	// broken are the rules that some entry broke.
	broken := map[string]bool{}

	refuse := func(plural, name string) func(SpecContext, string, string, ...change) {
		return func(ctx SpecContext, at, message string, changes ...change) {
			object := example(name)
			for _, c := range changes {
				if c.value == removed {
					parsePath(c.at).set(object.Object)
					continue
				}
				var value any
				data, err := yaml.YAMLToJSON([]byte(c.value))
				Expect(err).NotTo(HaveOccurred())
				wrapped := parse(fmt.Sprintf("apiVersion: v1\nkind: Any\nvalue: %s", data))
				value = wrapped.Object["value"]
				parsePath(c.at).set(object.Object, value)
			}
			err := create(ctx, object)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(And(ContainSubstring(at+": Invalid value"), ContainSubstring(message))))
			broken[ruleName(plural, parsePath(at).general(), message)] = true
		}
	}

	const (
		objectName = "this can't be the name of an object: use lower case letters, digits, '-' and '.', with a letter or digit at both ends"
		keyName    = "this can't be a key of a Secret or ConfigMap: use letters, digits, '-', '_' and '.'"
		headerName = "this can't be the name of a header: use letters, digits and '-'"
		ownHeader  = "this header is set by Pawl itself; choose another name"
		label      = "use lower case letters, digits and '-', with a letter or digit at both ends"
	)

	DescribeTable("of AgentRun", refuse("agentruns", "agentrun"),
		Entry("a model's name in capitals", "spec.modelRef.name", objectName, change{"spec.modelRef.name", "Sonnet"}),
		Entry("a policy's name with a slash", "spec.toolPolicyRefs[1].name", objectName, change{"spec.toolPolicyRefs[1].name", "other/tools"}),
		Entry("an output that asks for nothing", "spec.output", "set schema, validations or both", change{"spec.output", "{}"}),
	)

	const (
		needsStep = "provider Scripted needs at least one step in script"
		noNetwork = "provider Scripted uses no network: remove endpoint, credentialsSecretRef, caBundleConfigMapRef, parameters and platform"
		badURL    = "endpoint must be an absolute http or https URL without user, query or fragment"
		badPort   = "endpoint must have a host, and a port from 1 to 65535 if it has one"
		notBase   = "endpoint must be the base URL: remove the path of the operation, such as /chat/completions, which is appended to it"
		oneAnswer = "set exactly one of toolCalls, final, finalExpression, question, cannotContinue, raw and error"
	)
	DescribeTable("of Model with a network", refuse("models", "model-openai"),
		Entry("no model's name", "spec", "set model to the provider's own model name", change{"spec.model", removed}),
		Entry("a script", "spec", "script belongs to provider Scripted: remove it or change provider", change{"spec.script", "[{final: Done.}]"}),
		Entry("an endpoint without scheme", "spec.endpoint", badURL, change{"spec.endpoint", "llm.internal/v1"}),
		Entry("an endpoint without host", "spec.endpoint", badURL, change{"spec.endpoint", "https:///v1"}),
		Entry("an endpoint that is a path", "spec.endpoint", badURL, change{"spec.endpoint", "/v1"}),
		Entry("an endpoint of another scheme", "spec.endpoint", badURL, change{"spec.endpoint", "ftp://llm.internal/v1"}),
		Entry("an endpoint with a user", "spec.endpoint", badURL, change{"spec.endpoint", "https://me:secret@llm.internal/v1"}),
		Entry("an endpoint with a query", "spec.endpoint", badURL, change{"spec.endpoint", "https://llm.internal/v1?version=1"}),
		Entry("an endpoint with a user alone", "spec.endpoint", badURL, change{"spec.endpoint", `"https://me@llm.internal/v1"`}),
		Entry("an endpoint with a port alone", "spec.endpoint", badPort, change{"spec.endpoint", `"https://:8443/v1"`}),
		Entry("an endpoint with port 0", "spec.endpoint", badPort, change{"spec.endpoint", `"https://llm.internal:0/v1"`}),
		Entry("an endpoint with port 65536", "spec.endpoint", badPort, change{"spec.endpoint", `"https://llm.internal:65536/v1"`}),
		Entry("an endpoint with a port beyond all numbers", "spec.endpoint", badPort, change{"spec.endpoint", `"https://llm.internal:99999999999999999999/v1"`}),
		Entry("an endpoint of the operation", "spec.endpoint", notBase, change{"spec.endpoint", "https://llm.internal/v1/chat/completions"}),
		Entry("an endpoint of the operation, with a slash", "spec.endpoint", notBase, change{"spec.endpoint", "https://llm.internal/v1/messages/"}),
		Entry("a model's name with a newline", "spec.model", "spec.model in body should match", change{"spec.model", `"gpt-x\n"`}),
		Entry("a model's name of blanks", "spec.model", "spec.model in body should match", change{"spec.model", `"  "`}),
		Entry("an endpoint with a fragment", "spec.endpoint", badURL, change{"spec.endpoint", `"https://llm.internal/v1#top"`}),
		Entry("a Secret's name with an underscore", "spec.credentialsSecretRef.name", objectName, change{"spec.credentialsSecretRef.name", "open_ai"}),
		Entry("a key with a space", "spec.credentialsSecretRef.key", keyName, change{"spec.credentialsSecretRef.key", "api key"}),
		Entry("a ConfigMap's name that ends in a dash", "spec.caBundleConfigMapRef.name", objectName, change{"spec.caBundleConfigMapRef.name", "ca-"}),
		Entry("a key with a slash", "spec.caBundleConfigMapRef.key", keyName, change{"spec.caBundleConfigMapRef.key", "certs/ca.crt"}),
	)
	const (
		onePlatform = "set exactly one of bedrock, vertex and azure"
		someLimit   = "set maxConcurrentRequests, requestsPerMinute or both"
	)
	DescribeTable("of Model on a platform", refuse("models", "model-openai"),
		Entry("of another provider: bedrock", "spec", "platform bedrock serves provider Anthropic only", change{"spec.platform", "{bedrock: {region: eu-central-1}}"}),
		Entry("of another provider: vertex", "spec", "platform vertex serves providers Anthropic and Gemini only", change{"spec.platform", "{vertex: {project: my-project, location: global}}"}),
		Entry("of another provider: azure", "spec", "platform azure serves providers OpenAI and OpenAIResponses only", change{"spec.provider", "Gemini"}),
		Entry("azure without endpoint", "spec", "platform azure needs endpoint: the root of your resource, such as https://<name>.openai.azure.com", change{"spec.endpoint", removed}),
		Entry("without credentials", "spec", "platform needs credentialsSecretRef: the operator's own cloud identity is never used", change{"spec.credentialsSecretRef", removed}),
		Entry("none", "spec.platform", onePlatform, change{"spec.platform", "{}"}),
		Entry("two", "spec.platform", onePlatform, change{"spec.platform.vertex", "{project: my-project, location: global}"}),
		Entry("limits that limit nothing", "spec.limits", someLimit, change{"spec.limits", "{}"}),
	)
	DescribeTable("accept of Model", func(ctx SpecContext, name string, changes ...change) {
		object := example(name)
		for _, c := range changes {
			parsePath(c.at).set(object.Object, c.value)
		}
		Expect(create(ctx, object)).To(Succeed())
	},
		Entry("a region of the European partition", "model-bedrock", change{"spec.platform.bedrock.region", "eusc-de-east-1"}),
		Entry("a region of a government", "model-bedrock", change{"spec.platform.bedrock.region", "us-gov-west-1"}),
		Entry("a project's number", "model-vertex", change{"spec.platform.vertex.project", "123456789012"}),
		Entry("a project of a domain", "model-vertex", change{"spec.platform.vertex.project", "example.com:my-project"}),
		Entry("a version that moves on", "model-openai", change{"spec.platform.azure.apiVersion", "preview"}),
		Entry("an endpoint with an at sign in its path", "model-openai", change{"spec.endpoint", "https://llm.internal:65535/@prod/v1"}),
		Entry("an endpoint at an address", "model-openai", change{"spec.endpoint", "http://[::1]:8000/v1"}),
		Entry("a model's name with a space in it", "model-openai", change{"spec.model", "Llama 3 Instruct"}),
	)
	DescribeTable("of Model with a script", refuse("models", "model-scripted"),
		Entry("no script", "spec", needsStep, change{"spec.script", removed}),
		Entry("an endpoint", "spec", noNetwork, change{"spec.endpoint", "https://llm.internal/v1"}),
		Entry("credentials", "spec", noNetwork, change{"spec.credentialsSecretRef", "{name: a, key: b}"}),
		Entry("certificates", "spec", noNetwork, change{"spec.caBundleConfigMapRef", "{name: a, key: b}"}),
		Entry("parameters", "spec", noNetwork, change{"spec.parameters", "{}"}),
		Entry("a platform", "spec", noNetwork, change{"spec.platform", "{bedrock: {region: eu-central-1}}"}),
		Entry("a step without an answer", "spec.script[1]", oneAnswer, change{"spec.script[1]", "{delayMilliseconds: 5}"}),
		Entry("a step with two answers", "spec.script[6]", oneAnswer, change{"spec.script[6].question", "Which one?"}),
	)

	const (
		oneServer = "set exactly one of mcp, http, job and agentRun"
		mcpURL    = "url must be an absolute http or https URL without user or fragment"
		httpURL   = "url must be an absolute http or https URL without user, query or fragment"
		attempts  = "maxAttempts above 1 needs effect ReadOnly or Idempotent: a NonIdempotent call is sent at most once"
		lifetime  = "idempotencyKeyLifetimeSeconds needs effect Idempotent"
		lookup    = "reconcile needs effect Idempotent or NonIdempotent: a ReadOnly call has no effect to look up"
		member    = "write '$' and the names of members, joined by dots, such as $.time"
	)
	DescribeTable("of ToolPolicy", refuse("toolpolicies", "toolpolicy"),
		Entry("a server of no kind", "spec.servers[0]", oneServer, change{"spec.servers[0].mcp", removed}),
		Entry("a server of two kinds", "spec.servers[0]", oneServer, change{"spec.servers[0].http", "{url: 'http://a', tools: [{name: a, inputSchema: {}}]}"}),
		Entry("a server of all kinds but one", "spec.servers[2]", oneServer, change{"spec.servers[2].http", "{url: 'http://a', tools: [{name: a, inputSchema: {}}]}"}),
		Entry("a Job's name with a dot", "spec.servers[2].job.tools[0].name", "use letters, digits, '_' and '-'", change{"spec.servers[2].job.tools[0].name", "tests.run"}),
		Entry("a child's tool with a dot", "spec.servers[3].agentRun.tools[0].name", "use letters, digits, '_' and '-'", change{"spec.servers[3].agentRun.tools[0].name", "a.b"}),
		Entry("a child's Model", "spec.servers[3].agentRun.tools[0].template.modelRef.name", objectName, change{"spec.servers[3].agentRun.tools[0].template.modelRef.name", "A"}),
		Entry("a child's ToolPolicy", "spec.servers[3].agentRun.tools[0].template.toolPolicyRefs[0].name", objectName, change{"spec.servers[3].agentRun.tools[0].template.toolPolicyRefs[0].name", "a_b"}),
		Entry("a child's output that says nothing", "spec.servers[3].agentRun.tools[0].template.output", "set schema, validations or both", change{"spec.servers[3].agentRun.tools[0].template.output", "{}"}),
		Entry("a server's name with a dot", "spec.servers[0].name", label, change{"spec.servers[0].name", "crm.eu"}),
		Entry("a server's name in capitals", "spec.servers[0].name", label, change{"spec.servers[0].name", "CRM"}),
		Entry("an MCP address without scheme", "spec.servers[0].mcp.url", mcpURL, change{"spec.servers[0].mcp.url", "crm.tools.svc/mcp"}),
		Entry("an MCP address with a user", "spec.servers[0].mcp.url", mcpURL, change{"spec.servers[0].mcp.url", "http://me@crm.tools.svc/mcp"}),
		Entry("an MCP header with a colon", "spec.servers[0].mcp.headersFrom[0].name", headerName, change{"spec.servers[0].mcp.headersFrom[0].name", `"Authorization:"`}),
		Entry("an MCP header that the protocol sets", "spec.servers[0].mcp.headersFrom[0].name", ownHeader, change{"spec.servers[0].mcp.headersFrom[0].name", "Mcp-Session-Id"}),
		Entry("an MCP header's Secret", "spec.servers[0].mcp.headersFrom[0].secretKeyRef.name", objectName, change{"spec.servers[0].mcp.headersFrom[0].secretKeyRef.name", "CRM"}),
		Entry("an MCP header's key", "spec.servers[0].mcp.headersFrom[0].secretKeyRef.key", keyName, change{"spec.servers[0].mcp.headersFrom[0].secretKeyRef.key", "a b"}),
		Entry("an MCP server's certificates", "spec.servers[0].mcp.caBundleConfigMapRef.name", objectName, change{"spec.servers[0].mcp.caBundleConfigMapRef.name", "-ca"}),
		Entry("an MCP server's certificates' key", "spec.servers[0].mcp.caBundleConfigMapRef.key", keyName, change{"spec.servers[0].mcp.caBundleConfigMapRef.key", "a:b"}),
		Entry("an HTTP address with a query", "spec.servers[1].http.url", httpURL, change{"spec.servers[1].http.url", "https://billing.internal/tools?a=b"}),
		Entry("an HTTP address of another scheme", "spec.servers[1].http.url", httpURL, change{"spec.servers[1].http.url", "unix:///var/run/billing"}),
		Entry("an HTTP header with a space", "spec.servers[1].http.headersFrom[0].name", headerName, change{"spec.servers[1].http.headersFrom[0].name", "X Key"}),
		Entry("an HTTP header of Pawl's", "spec.servers[1].http.headersFrom[0].name", ownHeader, change{"spec.servers[1].http.headersFrom[0].name", "pawl-run"}),
		Entry("the header for effect keys", "spec.servers[1].http.headersFrom[0].name", ownHeader, change{"spec.servers[1].http.headersFrom[0].name", "IDEMPOTENCY-KEY"}),
		Entry("the header for the length", "spec.servers[1].http.headersFrom[0].name", ownHeader, change{"spec.servers[1].http.headersFrom[0].name", "Content-Length"}),
		Entry("an HTTP header's Secret", "spec.servers[1].http.headersFrom[0].secretKeyRef.name", objectName, change{"spec.servers[1].http.headersFrom[0].secretKeyRef.name", "a..b"}),
		Entry("an HTTP header's key", "spec.servers[1].http.headersFrom[0].secretKeyRef.key", keyName, change{"spec.servers[1].http.headersFrom[0].secretKeyRef.key", "ä"}),
		Entry("an HTTP server's certificates", "spec.servers[1].http.caBundleConfigMapRef.name", objectName, change{"spec.servers[1].http.caBundleConfigMapRef.name", "ca_1"}),
		Entry("an HTTP server's certificates' key", "spec.servers[1].http.caBundleConfigMapRef.key", keyName, change{"spec.servers[1].http.caBundleConfigMapRef.key", "a/b"}),
		Entry("a tool's name with a dot", "spec.servers[1].http.tools[0].name", "use letters, digits, '_' and '-'", change{"spec.servers[1].http.tools[0].name", "refund.order"}),
		Entry("attempts at a call that nothing is said of", "spec.tools[0]", attempts, change{"spec.tools[0].effect", removed}),
		Entry("attempts at a call that is sent once", "spec.tools[0]", attempts, change{"spec.tools[0].effect", "NonIdempotent"}),
		Entry("the lifetime of a key that does not exist", "spec.tools[1]", lifetime, change{"spec.tools[1].effect", "ReadOnly"}),
		Entry("a look-up of what has no effect", "spec.tools[1]", lookup, change{"spec.tools[1].idempotencyKeyLifetimeSeconds", removed}, change{"spec.tools[1].effect", "ReadOnly"}),
		Entry("an effect service's address with a query", "spec.tools[1].reconcile.http.url", httpURL, change{"spec.tools[1].reconcile.http.url", "https://billing.internal/effects?a=b"}),
		Entry("an effect service's header with a space", "spec.tools[1].reconcile.http.headersFrom[0].name", headerName, change{"spec.tools[1].reconcile.http.headersFrom[0].name", "X Key"}),
		Entry("an effect service's header of Pawl's", "spec.tools[1].reconcile.http.headersFrom[0].name", ownHeader, change{"spec.tools[1].reconcile.http.headersFrom[0].name", "Pawl-Run"}),
		Entry("an effect service's Secret", "spec.tools[1].reconcile.http.headersFrom[0].secretKeyRef.name", objectName, change{"spec.tools[1].reconcile.http.headersFrom[0].secretKeyRef.name", "A"}),
		Entry("an effect service's key", "spec.tools[1].reconcile.http.headersFrom[0].secretKeyRef.key", keyName, change{"spec.tools[1].reconcile.http.headersFrom[0].secretKeyRef.key", "a b"}),
		Entry("an effect service's certificates", "spec.tools[1].reconcile.http.caBundleConfigMapRef.name", objectName, change{"spec.tools[1].reconcile.http.caBundleConfigMapRef.name", "-ca"}),
		Entry("an effect service's certificates' key", "spec.tools[1].reconcile.http.caBundleConfigMapRef.key", keyName, change{"spec.tools[1].reconcile.http.caBundleConfigMapRef.key", "a:b"}),
		Entry("a member without dollar sign", "spec.tools[0].ignoreForProgress[0]", member, change{"spec.tools[0].ignoreForProgress[0]", "time"}),
		Entry("a member in brackets", "spec.tools[0].ignoreForProgress[1]", member, change{"spec.tools[0].ignoreForProgress[1]", "$.items[0]"}),
		Entry("a rule's name with a space", "spec.rules[0].name", label, change{"spec.rules[0].name", "all reads"}),
		Entry("an approval that nobody asks for", "spec.rules[1]", "approval belongs to action Ask", change{"spec.rules[1].action", "Allow"}),
		Entry("what follows a denial that can't come", "spec.rules[0]", "onDeny belongs to action Deny; for Ask set approval.onDeny", change{"spec.rules[0].onDeny", "End"}),
	)

	const (
		tokenURL = "tokenURL must be an absolute http or https URL without user or fragment"
		scope    = "a scope is printable ASCII without spaces, quotes and backslashes"
		twice    = "oauth sets the header Authorization: take it out of headersFrom"
	)
	for _, at := range []string{"spec.servers[0].mcp", "spec.servers[1].http", "spec.tools[1].reconcile.http"} {
		DescribeTable("of OAuth in "+at, refuse("toolpolicies", "toolpolicy"),
			Entry("another Authorization", at, twice, change{at + ".headersFrom[0].name", "authorization"}),
			Entry("a token endpoint with a user", at+".oauth.tokenURL", tokenURL, change{at + ".oauth.tokenURL", "https://me@id.internal/token"}),
			Entry("a token endpoint of another scheme", at+".oauth.tokenURL", tokenURL, change{at + ".oauth.tokenURL", "ftp://id.internal/token"}),
			Entry("a client id's Secret", at+".oauth.clientIDSecretRef.name", objectName, change{at + ".oauth.clientIDSecretRef.name", "O"}),
			Entry("a client id's key", at+".oauth.clientIDSecretRef.key", keyName, change{at + ".oauth.clientIDSecretRef.key", "a b"}),
			Entry("a client secret's Secret", at+".oauth.clientSecretSecretRef.name", objectName, change{at + ".oauth.clientSecretSecretRef.name", "O"}),
			Entry("a client secret's key", at+".oauth.clientSecretSecretRef.key", keyName, change{at + ".oauth.clientSecretSecretRef.key", "a b"}),
			Entry("a scope with a space", at+".oauth.scopes[1]", scope, change{at + ".oauth.scopes[1]", "a b"}),
			Entry("certificates", at+".oauth.caBundleConfigMapRef.name", objectName, change{at + ".oauth.caBundleConfigMapRef.name", "-ca"}),
			Entry("certificates' key", at+".oauth.caBundleConfigMapRef.key", keyName, change{at + ".oauth.caBundleConfigMapRef.key", "a:b"}),
		)
	}

	It("are all broken above", func() {
		for _, plural := range []string{"agentruns", "models", "toolpolicies"} {
			for _, rule := range rulesOf(plural, ptr.To(definition(plural).Properties["spec"]), "spec") {
				Expect(broken).To(HaveKey(rule))
			}
		}
	})
})
