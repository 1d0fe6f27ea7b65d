package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pawl-run/pawl/internal/jsonschema"
	"github.com/pawl-run/pawl/internal/strictjson"
	"github.com/pawl-run/pawl/internal/tool"
)

// toolName is what MCP allows.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// catalogue is what a server offers, read and judged.
type catalogue struct {
	offers  map[string]*offer
	listing tool.Listing
	// judged are all that were, the unusable ones too, so that none is judged twice.
	judged map[string]*offer
	// freshness is how long it is taken for true, until when that ends.
	freshness time.Duration
	until     time.Time
	// size counts the bytes that are kept.
	size int
	// modern is true where the list has what only the current revision has.
	modern bool
}

// offer is one tool.
type offer struct {
	definition tool.Definition
	// output is the schema of structured results, nil for none.
	output json.RawMessage
	// marks say which arguments are mirrored in headers.
	marks []mark
	// digest of everything that was judged, so that it is judged once.
	digest string
	// fault is what keeps it from being used, nil for nothing.
	fault error
}

// catalogueReader makes a catalogue of pages. A fault of one tool takes that tool out, and
// nothing else.
type catalogueReader struct {
	// known is what the server offered last, nil for nothing.
	known *catalogue
	// marked is true where arguments can be mirrored in headers.
	marked    bool
	freshness time.Duration

	modern      bool
	entries     int
	size        int
	offers      map[string]*offer
	judged      map[string]*offer
	quarantined map[string]string
}

// page takes in one page. Judging schemas takes time, so that it ends with ctx.
func (r *catalogueReader) page(ctx context.Context, page map[string]any) error {
	items, ok := page["tools"].([]any)
	if !ok {
		return errUnreadable
	}
	if r.offers == nil {
		r.offers, r.judged, r.quarantined = map[string]*offer{}, map[string]*offer{}, map[string]string{}
	}
	for _, item := range items {
		if r.entries++; r.entries > maxTools {
			return faultf("it has more than %d tools: offer fewer", maxTools)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.item(item)
		if r.size > maxCatalogueBytes {
			return faultf("the descriptions and schemas of its tools have more than %d bytes together: make them smaller, or offer fewer", maxCatalogueBytes)
		}
	}
	r.freshness = min(r.freshness, freshness(page))
	for _, name := range []string{"resultType", "ttlMs", "cacheScope"} {
		if _, has := page[name]; has {
			r.modern = true
		}
	}
	return nil
}

// item takes in one tool.
func (r *catalogueReader) item(item any) {
	members, _ := item.(map[string]any)
	name, _ := members["name"].(string)
	if !toolName.MatchString(name) {
		shown := fmt.Sprintf("(entry %d)", r.entries)
		if name != "" {
			shown = shownName(name)
		}
		r.quarantined[shown] = "its name is not 1 to 128 letters, digits, dots, _ and -: rename it"
		return
	}
	if _, bad := r.quarantined[name]; bad || r.offers[name] != nil {
		r.remove(name)
		r.quarantined[name] = "the server has another tool of the same name: rename one of them"
		return
	}
	o := r.judge(name, members)
	r.judged[name] = o
	if o.fault != nil {
		r.quarantined[name] = cutText(o.fault.Error(), maxReasonBytes)
		r.size += len(o.fault.Error())
		return
	}
	r.offers[name] = o
	r.size += o.bytes()
}

func (r *catalogueReader) remove(name string) {
	if o := r.offers[name]; o != nil {
		r.size -= o.bytes()
		delete(r.offers, name)
	}
}

// judge reads one tool and says what keeps it from being used. What was judged before, and
// is as it was, is not judged again.
func (r *catalogueReader) judge(name string, members map[string]any) *offer {
	description, _ := members["description"].(string)
	o := &offer{definition: tool.Definition{
		Name: name, Description: cutText(description, maxDescriptionBytes), InputSchema: strictjson.Canonical(members["inputSchema"]),
	}}
	if output := members["outputSchema"]; output != nil {
		o.output = strictjson.Canonical(output)
	}
	if annotations, ok := members["annotations"].(map[string]any); ok && len(annotations) > 0 {
		o.definition.Annotations = strictjson.Canonical(annotations)
	}
	o.digest = strictjson.Digest([]byte(fmt.Sprint(r.marked, o.definition.Digest(name), string(o.output))))
	if r.known != nil {
		if before := r.known.judged[name]; before != nil && before.digest == o.digest {
			return before
		}
	}
	if o.fault = r.check(o, members["inputSchema"]); o.fault != nil {
		// Of what can't be used the digest is enough.
		return &offer{digest: o.digest, fault: o.fault}
	}
	return o
}

func (r *catalogueReader) check(o *offer, inputSchema any) error {
	switch {
	case len(o.definition.InputSchema) > maxSchemaBytes:
		return fmt.Errorf("its input schema has %d bytes, more than the %d allowed: make it smaller", len(o.definition.InputSchema), maxSchemaBytes)
	case len(o.output) > maxSchemaBytes:
		return fmt.Errorf("its output schema has %d bytes, more than the %d allowed: make it smaller", len(o.output), maxSchemaBytes)
	case len(o.definition.Annotations) > maxAnnotationBytes:
		return fmt.Errorf("its annotations have more than %d bytes: make them shorter", maxAnnotationBytes)
	}
	if _, err := jsonschema.CompileObject(o.definition.InputSchema); err != nil {
		return fmt.Errorf("input %w", err)
	}
	if o.output != nil {
		if _, err := jsonschema.Compile(o.output); err != nil {
			return fmt.Errorf("output %w", err)
		}
	}
	if !r.marked {
		return nil
	}
	var err error
	o.marks, err = readMarks(inputSchema)
	return err
}

// catalogue puts everything in a stable order.
func (r *catalogueReader) catalogue() *catalogue {
	c := &catalogue{offers: r.offers, judged: r.judged, freshness: r.freshness, size: r.size, modern: r.modern}
	for _, o := range r.offers {
		c.listing.Tools = append(c.listing.Tools, o.definition)
	}
	slices.SortFunc(c.listing.Tools, func(a, b tool.Definition) int { return cmp.Compare(a.Name, b.Name) })
	for name, reason := range r.quarantined {
		c.listing.Quarantined = append(c.listing.Quarantined, tool.Quarantined{Name: name, Reason: reason})
	}
	slices.SortFunc(c.listing.Quarantined, func(a, b tool.Quarantined) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

func (o *offer) bytes() int {
	return len(o.definition.Name) + len(o.definition.Description) + len(o.definition.InputSchema) + len(o.definition.Annotations) + len(o.output)
}

// shownName is a name that is not one, fit to be shown and told from others.
func shownName(name string) string {
	const most = 80
	if len(name) <= most {
		return strictjson.Preview([]byte(name), most)
	}
	return strictjson.Preview([]byte(name), most) + " (" + strings.TrimPrefix(strictjson.Digest([]byte(name)), "sha256:")[:8] + ")"
}

// cutText shortens text at a rune boundary.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
