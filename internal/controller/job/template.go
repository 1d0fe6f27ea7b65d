// Package job runs the calls of Job tools: it makes Jobs of what a ToolPolicy declares,
// and reads what became of them.
package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pawl-run/pawl/api/v1alpha1"
	"github.com/pawl-run/pawl/internal/policy"
)

// Names that belong to Pawl in every pod.
const (
	reserved      = "pawl-"
	volumeName    = "pawl-arguments"
	mountPath     = "/pawl"
	argumentsFile = "arguments.json"
	envEffectKey  = "PAWL_EFFECT_KEY"
	envCallID     = "PAWL_CALL_ID"
)

// maxTemplateBytes bounds a template, so that its Job can be stored with the arguments.
const maxTemplateBytes = 64 << 10

// Problems lists what is wrong with the templates of a policy.
func Problems(spec v1alpha1.ToolPolicySpec) []policy.Problem {
	var problems []policy.Problem
	for i, server := range spec.Servers {
		if server.Job == nil {
			continue
		}
		for j, tool := range server.Job.Tools {
			if _, err := Parse(tool.Template.Spec.Raw); err != nil {
				place := fmt.Sprintf("servers[%d] %q: job.tools[%d] %q: template.spec", i, server.Name, j, tool.Name)
				problems = append(problems, policy.Problem{Place: place, Text: err.Error()})
			}
		}
	}
	return problems
}

// Parse reads a template. Its error says what to change.
func Parse(template []byte) (*corev1.PodSpec, error) {
	if len(template) > maxTemplateBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d: shorten it", len(template), maxTemplateBytes)
	}
	decoder := json.NewDecoder(bytes.NewReader(template))
	decoder.DisallowUnknownFields()
	spec := &corev1.PodSpec{}
	if err := decoder.Decode(spec); err != nil {
		return nil, fmt.Errorf("it is not the spec of a pod: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch {
	case len(spec.Containers) == 0:
		return nil, errors.New("containers: a pod needs at least one")
	case spec.RestartPolicy != "" && spec.RestartPolicy != corev1.RestartPolicyNever:
		return nil, errors.New("restartPolicy: only Never is possible, since nothing is started twice: remove it")
	case spec.ActiveDeadlineSeconds != nil:
		return nil, errors.New("activeDeadlineSeconds: set the tool's timeoutSeconds instead")
	}
	for _, volume := range spec.Volumes {
		if strings.HasPrefix(volume.Name, reserved) {
			return nil, fmt.Errorf("volume %q: names that begin with %q are Pawl's own: rename it", volume.Name, reserved)
		}
	}
	for i := range spec.InitContainers {
		if err := checkContainer(&spec.InitContainers[i]); err != nil {
			return nil, err
		}
	}
	for i := range spec.Containers {
		if err := checkContainer(&spec.Containers[i]); err != nil {
			return nil, err
		}
	}
	return spec, checkResult(&spec.Containers[0])
}

func checkContainer(c *corev1.Container) error {
	switch {
	case c.Name == "" || c.Image == "":
		return fmt.Errorf("container %q: set its name and its image", c.Name)
	case strings.HasPrefix(c.Name, reserved):
		return fmt.Errorf("container %q: names that begin with %q are Pawl's own: rename it", c.Name, reserved)
	}
	for _, env := range c.Env {
		if env.Name == envEffectKey || env.Name == envCallID {
			return fmt.Errorf("container %q: env %s is set by Pawl: remove it", c.Name, env.Name)
		}
	}
	for _, mount := range c.VolumeMounts {
		if path := strings.TrimRight(mount.MountPath, "/"); path == mountPath || strings.HasPrefix(path, mountPath+"/") {
			return fmt.Errorf("container %q: %s is where Pawl mounts the arguments: mount %q elsewhere", c.Name, mountPath, mount.Name)
		}
	}
	return nil
}

// checkResult keeps the end of a log from being taken for a result.
func checkResult(first *corev1.Container) error {
	if p := first.TerminationMessagePolicy; p != "" && p != corev1.TerminationMessageReadFile {
		return fmt.Errorf("container %q: terminationMessagePolicy: only File is possible, since the end of a log is no result: remove it", first.Name)
	}
	return nil
}
