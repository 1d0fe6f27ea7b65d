package admission

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pawlv1alpha1 "github.com/pawl-run/pawl/api/v1alpha1"
)

var _ = Describe("Roles", func() {
	It("hold no wildcard", func(ctx SpecContext) {
		shipped := 0
		check := func(name string, rules []rbacv1.PolicyRule) {
			if !strings.HasPrefix(name, "pawl-") {
				return
			}
			shipped++
			for _, rule := range rules {
				for _, list := range [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.NonResourceURLs} {
					Expect(list).NotTo(ContainElement(ContainSubstring("*")), name)
				}
			}
		}
		clusterRoles, roles := &rbacv1.ClusterRoleList{}, &rbacv1.RoleList{}
		Expect(admin.List(ctx, clusterRoles)).To(Succeed())
		Expect(admin.List(ctx, roles)).To(Succeed())
		for _, role := range clusterRoles.Items {
			check(role.Name, role.Rules)
		}
		for _, role := range roles.Items {
			check(role.Name, role.Rules)
		}
		Expect(shipped).To(BeNumerically(">=", 7))
	})

	DescribeTable("give what they say and no more",
		func(ctx SpecContext, role, allowed, refused string) {
			space := newNamespace(ctx)
			user := space.user(ctx, "someone", role)
			// Aggregated roles are filled in by a controller.
			for _, may := range strings.Fields(allowed) {
				Eventually(func() bool { return can(ctx, user, space.name, may) }).WithTimeout(patience).Should(BeTrue(), may)
			}
			for _, mayNot := range strings.Fields(refused) {
				Expect(can(ctx, user, space.name, mayNot)).To(BeFalse(), mayNot)
			}
		},
		Entry("viewer", "pawl-viewer",
			"get:agentruns list:models watch:toolpolicies",
			"create:agentruns patch:agentruns approve:agentruns answer:agentruns settle:agentruns patch:agentruns/status"),
		Entry("editor", "pawl-editor",
			"create:agentruns update:agentruns patch:agentruns",
			"approve:agentruns answer:agentruns settle:agentruns patch:agentruns/status create:models create:toolpolicies"),
		Entry("approver", "pawl-approver",
			"get:agentruns update:agentruns patch:agentruns approve:agentruns answer:agentruns settle:agentruns",
			"create:agentruns delete:agentruns patch:agentruns/status create:toolpolicies"),
		Entry("policy admin", "pawl-policy-admin",
			"create:models update:models delete:models create:toolpolicies patch:toolpolicies delete:toolpolicies",
			"create:agentruns approve:agentruns answer:agentruns settle:agentruns patch:toolpolicies/status"),
		Entry("Kubernetes' view", "view",
			"get:agentruns list:models list:toolpolicies",
			"create:agentruns patch:agentruns approve:agentruns answer:agentruns settle:agentruns"),
		Entry("Kubernetes' edit", "edit",
			"get:agentruns create:agentruns patch:agentruns",
			"approve:agentruns answer:agentruns settle:agentruns create:toolpolicies create:models patch:agentruns/status"),
		Entry("Kubernetes' admin", "admin",
			"get:agentruns create:agentruns patch:agentruns",
			"approve:agentruns answer:agentruns settle:agentruns create:toolpolicies create:models patch:agentruns/status"),
	)

	It("let the operator read Secrets and ConfigMaps by name, and give no verdicts", func(ctx SpecContext) {
		space := newNamespace(ctx)
		for _, may := range strings.Fields("get:secrets get:configmaps create:configmaps update:configmaps " +
			"create:agentruns list:agentruns watch:agentruns patch:agentruns/status update:agentruns/finalizers patch:models/status patch:toolpolicies/status " +
			"create:jobs list:jobs watch:jobs patch:jobs delete:jobs list:pods get:pods/log") {
			Expect(can(ctx, operator, space.name, may)).To(BeTrue(), may)
		}
		for _, mayNot := range strings.Fields("list:secrets watch:secrets update:secrets list:configmaps watch:configmaps patch:configmaps " +
			"approve:agentruns answer:agentruns settle:agentruns patch:models patch:toolpolicies create:leases " +
			"update:jobs watch:pods create:pods delete:pods create:pods/exec") {
			Expect(can(ctx, operator, space.name, mayNot)).To(BeFalse(), mayNot)
		}
		Expect(can(ctx, operator, operatorNamespace, "create:leases")).To(BeTrue())
	})
})

// can asks the API server whether the user behind a client may do something, given as
// verb:resource.
func can(ctx SpecContext, user client.Client, space, what string) bool {
	GinkgoHelper()
	verb, resource, _ := strings.Cut(what, ":")
	resource, subresource, _ := strings.Cut(resource, "/")
	group := pawlv1alpha1.GroupVersion.Group
	switch resource {
	case "secrets", "configmaps", "pods":
		group = ""
	case "jobs":
		group = "batch"
	case "leases":
		group = "coordination.k8s.io"
	}
	review := &authorizationv1.SelfSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: space, Verb: verb, Group: group, Resource: resource, Subresource: subresource,
		}},
	}
	Expect(user.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}
