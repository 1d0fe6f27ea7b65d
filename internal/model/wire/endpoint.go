package wire

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// ParseEndpoint checks a base URL and returns it without a slash at its end. operation is
// what a wire appends to it, and what is often copied along from a vendor's examples. The
// error does not repeat the input, which may hold a password.
func ParseEndpoint(endpoint, operation string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("endpoint is not a URL")
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, errors.New("endpoint must be an absolute http or https URL with a host")
	}
	if u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, errors.New("endpoint may not have a user, a query or a fragment")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the port of endpoint must be a number from 1 to 65535")
		}
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	if operation != "" && strings.HasSuffix(u.Path, operation) {
		return nil, fmt.Errorf("endpoint must be the base URL: remove %s, which is appended to it", operation)
	}
	return u, nil
}

// CheckModel says what is wrong with the name of a model. Some servers' names have spaces
// in them; at an end, or as the end of a line, they come from copying.
func CheckModel(name string) error {
	switch {
	case name == "":
		return errors.New("the model has no name")
	case strings.TrimSpace(name) != name || strings.IndexFunc(name, unicode.IsControl) >= 0:
		return errors.New("model has white space around it, or a character that no name has: remove it")
	default:
		return nil
	}
}
