package expression

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// objects are the values with fixed members. They are given as maps at run time; the
// declaration is what lets the type checker refuse a member that does not exist.
var objects = map[string]map[string]*cel.Type{
	"tool": {
		"name":   cel.StringType,
		"server": cel.StringType,
		"effect": cel.StringType,
	},
	"call": {
		"id":        cel.StringType,
		"position":  cel.IntType,
		"batchSize": cel.IntType,
		"answers":   cel.MapType(cel.StringType, cel.DynType),
	},
	"run": {
		"namespace": cel.StringType,
		"name":      cel.StringType,
		"labels":    cel.MapType(cel.StringType, cel.StringType),
		"createdBy": cel.StringType,
		"turn":      cel.IntType,
		"usage":     cel.ObjectType("usage"),
	},
	"usage": {
		"totalTokens":  cel.IntType,
		"inputTokens":  cel.IntType,
		"outputTokens": cel.IntType,
	},
}

func memberNames(object string) string {
	return strings.Join(slices.Sorted(maps.Keys(objects[object])), ", ")
}

// provider knows the declared objects beside the types that CEL brings along.
type provider struct{ types.Provider }

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := objects[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if members, ok := objects[name]; ok {
		return slices.Sorted(maps.Keys(members)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider. Without accessors in the answer CEL
// reads the member from the map that is there at run time.
func (p provider) FindStructFieldType(name, member string) (*types.FieldType, bool) {
	if members, ok := objects[name]; ok {
		t, found := members[member]
		if !found {
			return nil, false
		}
		return &types.FieldType{Type: t}, true
	}
	return p.Provider.FindStructFieldType(name, member)
}
