package integration

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/test/fakemodel"
)

var _ = Describe("A Model on Amazon Bedrock", Ordered, ContinueOnFailure, func() {
	const modelName = "eu.anthropic.claude-sonnet-5-v1:0"
	var (
		w      world
		server *fakemodel.Server
	)

	BeforeAll(func(ctx SpecContext) {
		w = newWorld(ctx, "bedrock")
		keys := fakemodel.AWSKeys{AccessKeyID: "AKIAPAWLTEST", SecretAccessKey: "pawl/secret+access", SessionToken: "pawl//session=="}
		server = must(fakemodel.Start(fakemodel.Options{Authorize: fakemodel.SignedBy(keys, "eu-central-1", "bedrock", time.Now)}))
		DeferCleanup(server.Close)
		server.Enqueue(
			fakemodel.Thinking(fakemodel.Propose(fakemodel.Call{Name: "lookup", Arguments: `{"key":"profile"}`}), "Which one?"),
			fakemodel.Thinking(fakemodel.Paused("A moment."), "Hm."),
			fakemodel.Text("It is active."),
		)
		pair := `{"accessKeyId": %q, "secretAccessKey": %q, "sessionToken": %q}`
		Expect(env.Admin.Create(ctx, &corev1.Secret{ObjectMeta: w.meta("aws"), StringData: map[string]string{
			"pair.json":  fmt.Sprintf(pair, keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken),
			"other.json": fmt.Sprintf(pair, keys.AccessKeyID, "another", keys.SessionToken),
		}})).To(Succeed())
	})

	start := func(ctx SpecContext, name, key string) {
		GinkgoHelper()
		w.start(ctx, name, fmt.Sprintf(
			"model: {provider: Anthropic, model: %q, endpoint: %q, platform: {bedrock: {region: eu-central-1}}, credentialsSecretRef: {name: aws, key: %s}}",
			modelName, server.Root(), key))
	}

	It("is asked with signatures by the Secret's key pair, thoughts and pauses echoed", func(ctx SpecContext) {
		start(ctx, "served", "pair.json")
		run := awaitCompleted(ctx, w.key("served"))
		Expect(run.Status.Result.Text).To(Equal("It is active."))
		Expect(server.Refusals()).To(BeEmpty())
		requests := server.Requests()
		Expect(requests).To(HaveLen(3))
		for _, request := range requests {
			Expect(request.URL.Path).To(Equal("/model/" + modelName + "/invoke"))
		}
		Expect(requests[2].Last().Role).To(Equal("assistant"), "a pause is the end of the next request")
		records, _ := journalOf(ctx, run)
		for _, record := range records {
			Expect(string(record.Bytes)).NotTo(Or(ContainSubstring("pawl/secret"), ContainSubstring("pawl//session")))
		}
	})

	It("ends a run when the signature is refused", func(ctx SpecContext) {
		start(ctx, "refused", "other.json")
		run := awaitEnd(ctx, w.key("refused"), v1alpha1.ReasonModelError)
		Expect(condition(run, v1alpha1.ConditionSucceeded).Message).To(ContainSubstring("Unauthorized"))
	})
})
