package job

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pawl-run/pawl/api/v1alpha1"
)

func TestTemplates(t *testing.T) {
	for template, want := range map[string]string{
		`{"containers":[{"name":"a","image":"b"}]}`:                                                           "",
		`{"restartPolicy":"Never","containers":[{"name":"a","image":"b","terminationMessagePolicy":"File"}]}`: "",
		``: "it is not the spec of a pod",
		`{"containers":[{"name":"a","image":"b","imagge":"c"}]}`: `unknown field "imagge"`,
		`{"containers":{}}`: "it is not the spec of a pod",
		`{}`:                "at least one",
		`{"restartPolicy":"OnFailure","containers":[{"name":"a","image":"b"}]}`:                                                                      "restartPolicy",
		`{"activeDeadlineSeconds":5,"containers":[{"name":"a","image":"b"}]}`:                                                                        "timeoutSeconds",
		`{"containers":[{"name":"a"}]}`:                                                                                                              "its image",
		`{"containers":[{"name":"pawl-a","image":"b"}]}`:                                                                                             "rename it",
		`{"volumes":[{"name":"pawl-x","emptyDir":{}}],"containers":[{"name":"a","image":"b"}]}`:                                                      "rename it",
		`{"containers":[{"name":"a","image":"b","env":[{"name":"PAWL_CALL_ID","value":"1"}]}]}`:                                                      "PAWL_CALL_ID is set by Pawl",
		`{"containers":[{"name":"a","image":"b","volumeMounts":[{"name":"x","mountPath":"/pawl/"}]}]}`:                                               "elsewhere",
		`{"initContainers":[{"name":"a","image":"b","volumeMounts":[{"name":"x","mountPath":"/pawl/in"}]}],"containers":[{"name":"a","image":"b"}]}`: "elsewhere",
		`{"containers":[{"name":"a","image":"b","terminationMessagePolicy":"FallbackToLogsOnError"}]}`:                                               "terminationMessagePolicy",
		`{"containers":[{"name":"a","image":"b","args":["` + strings.Repeat("x", 65<<10) + `"]}]}`:                                                   "shorten it",
	} {
		_, err := Parse([]byte(template))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %q", template, err, want)
		}
	}
}

func TestProblemsNameTheirPlace(t *testing.T) {
	spec := v1alpha1.ToolPolicySpec{Servers: []v1alpha1.ToolServer{
		{Name: "web", HTTP: &v1alpha1.HTTPServer{}},
		{Name: "ci", Job: &v1alpha1.JobServer{Tools: []v1alpha1.JobTool{
			{Name: "good", Template: v1alpha1.JobTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[{"name":"a","image":"b"}]}`)}}},
			{Name: "bad", Template: v1alpha1.JobTemplate{Spec: runtime.RawExtension{Raw: []byte(`{"containers":[]}`)}}},
		}}},
	}}
	problems := Problems(spec)
	if len(problems) != 1 || problems[0].Place != `servers[1] "ci": job.tools[1] "bad": template.spec` {
		t.Errorf("problems %v", problems)
	}
}
