package integration

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
)

var _ = Describe("A Model on Azure", Ordered, ContinueOnFailure, func() {
	const key = "azure-key-0123456789"
	var (
		w      world
		server *fakemodel.Server
	)

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "azure")
		Expect(env.Admin.Create(ctx, &corev1.Secret{ObjectMeta: w.meta("azure"), StringData: map[string]string{
			"key": key, "token": "Bearer " + key, "wrong": "Bearer another",
		}})).To(Succeed())
	})

	BeforeEach(func() {
		server = must(fakemodel.Start(fakemodel.Options{Key: key}))
		DeferCleanup(server.Close)
		server.Enqueue(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"key":"profile"}`}), fakemodel.Text("It is active."))
	})

	start := func(ctx SpecContext, name string, provider v1alpha1.Provider, platform, credential string) {
		GinkgoHelper()
		w.start(ctx, name, fmt.Sprintf(
			"model: {provider: %s, model: my-deployment, endpoint: %q, platform: {azure: {%s}}, credentialsSecretRef: {name: azure, key: %s}}",
			provider, server.Root(), platform, credential))
	}

	DescribeTable("is asked below the root of its resource, with what the Secret holds",
		func(ctx SpecContext, name string, provider v1alpha1.Provider, platform, credential, address string) {
			start(ctx, name, provider, platform, credential)
			run := awaitCompleted(ctx, w.key(name))
			Expect(run.Status.Result.Text).To(Equal("It is active."))
			expectStrict(server)
			Expect(server.Requests()).To(HaveLen(2))
			for _, request := range server.Requests() {
				Expect(request.URL.String()).To(Equal(address))
			}
			records, _ := journalOf(ctx, run)
			for _, record := range records {
				Expect(string(record.Bytes)).NotTo(ContainSubstring(key))
			}
		},
		Entry("Chat Completions", "chat", v1alpha1.ProviderOpenAI, "", "key", "/openai/v1/chat/completions"),
		Entry("Chat Completions of a dated version", "chat-dated", v1alpha1.ProviderOpenAI, "apiVersion: 2024-10-21", "token",
			"/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"),
		Entry("Responses", "responses", v1alpha1.ProviderOpenAIResponses, "", "token", "/openai/v1/responses"),
		Entry("Responses of a dated version", "responses-dated", v1alpha1.ProviderOpenAIResponses, "apiVersion: 2025-03-01-preview", "key",
			"/openai/responses?api-version=2025-03-01-preview"),
	)

	It("ends a run when it refuses the token", func(ctx SpecContext) {
		start(ctx, "refused", v1alpha1.ProviderOpenAIResponses, "", "wrong")
		run := awaitEnd(ctx, w.key("refused"), v1alpha1.ReasonModelError)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(And(ContainSubstring("Unauthorized"), Not(ContainSubstring("another"))))
	})
})
