package expression

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// maxResultUnits bounds what an expression may give: about this many bytes.
const maxResultUnits = 1 << 20

// Errors of a conversion.
var (
	// ErrNumber means that a number doesn't fit any kind that CEL can calculate with.
	ErrNumber = errors.New("a number is too large to calculate with")
	// ErrValue means that an expression gives something that JSON has no form for.
	ErrValue = errors.New("it gives no JSON value")
)

// FromJSON turns a JSON value into what expressions calculate with. Numbers are
// json.Number before: those written as integers become int64, or uint64 where they
// need it, and all others float64. Values without json.Number are returned as they
// are; the argument itself is never changed.
func FromJSON(v any) (any, error) {
	converted, _, err := fromJSON(v)
	return converted, err
}

// fromJSON says besides whether anything had to change, so that values that were
// converted before are not copied again.
func fromJSON(v any) (any, bool, error) {
	switch v := v.(type) {
	case nil, bool, string, int64, uint64, float64, map[string]string:
		return v, false, nil
	case json.Number:
		number, err := fromNumber(v)
		return number, true, err
	case int:
		return int64(v), true, nil
	case int32:
		return int64(v), true, nil
	case []any:
		return fromArray(v)
	case map[string]any:
		return fromObject(v)
	}
	return nil, false, fmt.Errorf("%w: Go type %T", ErrValue, v)
}

func fromArray(items []any) (any, bool, error) {
	var changed []any
	for i, item := range items {
		converted, different, err := fromJSON(item)
		if err != nil {
			return nil, false, err
		}
		if different && changed == nil {
			changed = append(make([]any, 0, len(items)), items[:i]...)
		}
		if changed != nil {
			changed = append(changed, converted)
		}
	}
	if changed == nil {
		return items, false, nil
	}
	return changed, true, nil
}

func fromObject(members map[string]any) (any, bool, error) {
	changed := make(map[string]any)
	for name, value := range members {
		converted, different, err := fromJSON(value)
		if err != nil {
			return nil, false, err
		}
		if different {
			changed[name] = converted
		}
	}
	if len(changed) == 0 {
		return members, false, nil
	}
	for name, value := range members {
		if _, ok := changed[name]; !ok {
			changed[name] = value
		}
	}
	return changed, true, nil
}

func fromNumber(n json.Number) (any, error) {
	text := n.String()
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
		if u, err := strconv.ParseUint(text, 10, 64); err == nil {
			return u, nil
		}
		return nil, ErrNumber
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, ErrNumber
	}
	return f, nil
}

// toJSON turns what CEL gives into a JSON value: bytes become base64, timestamps and
// durations their text.
func toJSON(v ref.Val) (any, error) {
	c := conversion{left: maxResultUnits}
	return c.value(v)
}

type conversion struct{ left int }

func (c *conversion) value(v ref.Val) (any, error) {
	if c.left--; c.left < 0 {
		return nil, fmt.Errorf("%w: it gives a value of more than %d bytes", ErrCost, maxResultUnits)
	}
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int, types.Uint, types.Double:
		return numberOf(v)
	case types.Bytes:
		return c.text(base64.StdEncoding.EncodeToString(v))
	case *types.Optional:
		if v.HasValue() {
			return c.value(v.GetValue())
		}
		return nil, fmt.Errorf("%w: an optional without value; add .orValue()", ErrValue)
	case traits.Mapper:
		return c.object(v)
	case traits.Lister:
		return c.array(v)
	case types.String, types.Timestamp, types.Duration:
		return c.scalarText(v)
	}
	return nil, fmt.Errorf("%w: a type, not a value", ErrValue)
}

func numberOf(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if uint64(v) <= math.MaxInt64 {
			return int64(v), nil
		}
		return uint64(v), nil
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("%w: a number that is not finite", ErrValue)
}

func (c *conversion) scalarText(v ref.Val) (any, error) {
	text, ok := v.ConvertToType(types.StringType).(types.String)
	if !ok {
		return nil, ErrValue
	}
	return c.text(string(text))
}

func (c *conversion) text(s string) (any, error) {
	if c.left -= len(s); c.left < 0 {
		return nil, fmt.Errorf("%w: it gives a value of more than %d bytes", ErrCost, maxResultUnits)
	}
	return s, nil
}

func (c *conversion) array(list traits.Lister) (any, error) {
	items := []any{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		item, err := c.value(it.Next())
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (c *conversion) object(m traits.Mapper) (any, error) {
	members := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		name, err := c.scalarText(key)
		if err != nil {
			return nil, err
		}
		if members[name.(string)], err = c.value(m.Get(key)); err != nil {
			return nil, err
		}
	}
	return members, nil
}
