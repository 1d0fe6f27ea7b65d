package strictjson

import "strings"

// Without copies v and leaves out the members that paths name. A path is a dollar
// sign and member names joined by dots, "$.a.b"; arrays on the way are descended
// into element by element. Paths that lead nowhere change nothing. v itself is
// never changed; parts that no path touches are shared with the copy.
func Without(v any, paths []string) any {
	root := node{}
	for _, path := range paths {
		names, ok := strings.CutPrefix(path, "$.")
		if !ok {
			continue
		}
		at := root
		for name := range strings.SplitSeq(names, ".") {
			next, ok := at[name]
			if !ok {
				next = node{}
				at[name] = next
			}
			at = next
		}
		at[drop] = nil
	}
	return root.prune(v)
}

// node is one step of the paths, as a tree. A node with the entry drop ends a path.
type node map[string]node

// drop can't be a member's name: paths are split at dots.
const drop = "."

func (n node) prune(v any) any {
	if len(n) == 0 {
		return v
	}
	switch v := v.(type) {
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = n.prune(item)
		}
		return items
	case map[string]any:
		members := make(map[string]any, len(v))
		for name, value := range v {
			next := n[name]
			if _, gone := next[drop]; gone {
				continue
			}
			members[name] = next.prune(value)
		}
		return members
	}
	return v
}
