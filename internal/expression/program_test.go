package expression

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// number is a JSON number as the strict parser gives it.
type number = json.Number

func vars() map[string]any {
	return map[string]any{
		"args": map[string]any{
			"amount": number("100"), "exact": number("100.0"), "power": number("1e2"),
			"order_id": "o-17", "tags": []any{"a", "b"}, "nested": map[string]any{"n": nil},
			"big": number("18446744073709551615"), "flag": true,
		},
		"tool": map[string]any{"name": "billing.refund", "server": "billing", "effect": "Idempotent"},
		"call": map[string]any{"id": "c1", "position": number("0"), "batchSize": 2},
		"run": map[string]any{
			"namespace": "support", "name": "order-17", "labels": map[string]string{"team": "red"},
			"createdBy": "jane", "turn": int32(3),
			"usage": map[string]any{"totalTokens": int64(12), "inputTokens": int64(10), "outputTokens": int64(2)},
		},
	}
}

func TestWhen(t *testing.T) {
	tests := map[string]bool{
		`args.amount <= 100.0`: true, `args.exact <= 100.0`: true, `args.power <= 100.0`: true,
		`args.amount <= 100`: true, `args.exact <= 100`: true, `args.power <= 100`: true,
		`args.amount == 100.0 && args.exact == 100 && args.power == args.amount`: true,
		`args.amount < 99.5`:                                      false,
		`args.big > 9223372036854775807`:                          true,
		`args.order_id.startsWith("o-")`:                          true,
		`args.order_id.matches("^o-[0-9]+$")`:                     true,
		`"a" in args.tags && !("z" in args.tags)`:                 true,
		`"order_id" in args`:                                      true,
		`args.tags.all(x, x in ["a", "b", "c"])`:                  true,
		`args.tags != ["b", "a"]`:                                 true,
		`has(args.missing)`:                                       false,
		`args.?missing.orValue(1) == 1`:                           true,
		`args.nested.n == null`:                                   true,
		`args.flag`:                                               true,
		`run.namespace == "support" && run.createdBy != ""`:       true,
		`run.labels.team == "red" && run.labels["team"] == "red"`: true,
		`has(run.labels.other)`:                                   false,
		`run.turn < 5.0 && run.usage.totalTokens == 12`:           true,
		`tool.name == tool.server + ".refund"`:                    true,
		`tool.effect in ["ReadOnly", "Idempotent"]`:               true,
		`call.position == 0 && call.batchSize == 2`:               true,
		`"%s-%d".format([args.order_id, 7]) == "o-17-7"`:          true,
		`args.tags.join("/") == "a/b"`:                            true,
		`args.order_id.replace("o", "xx") == "xx-17"`:             true,
		`args.order_id.indexOf("1") == 2`:                         true,
		`timestamp("2026-01-01T00:00:00Z").getHours() == 0`:       true,
	}
	for expression, want := range tests {
		t.Run(expression, func(t *testing.T) {
			program, err := CompileWhen(expression)
			if err != nil {
				t.Fatalf("CompileWhen: %v", err)
			}
			got, err := program.EvalBool(vars())
			if err != nil || got != want {
				t.Errorf("EvalBool = %v, %v; want %v", got, err, want)
			}
		})
	}
}

func TestProblems(t *testing.T) {
	tests := map[string]struct {
		compile    func(string) (*Program, error)
		expression string
		want       []string
	}{
		"misspelt member":        {CompileWhen, `true && run.nmae == "x"`, []string{"column 12", "'nmae'", "createdBy, labels, name"}},
		"misspelt usage":         {CompileWhen, `run.usage.tokens > 1`, []string{"'tokens'", "totalTokens"}},
		"misspelt variable":      {CompileWhen, `arg.amount > 1`, []string{"column 1", "'arg'", "use args, tool, call, run"}},
		"second line":            {CompileWhen, "true &&\n  call.nr == 1", []string{"line 2, column 7", "batchSize, id, position"}},
		"not a bool":             {CompileWhen, `"yes"`, []string{"gives string", "true or false"}},
		"validation string":      {CompileValidation, `string(answer)`, []string{"gives string"}},
		"optional":               {CompileWhen, `args.?flag`, []string{"gives optional_type"}},
		"wrong type":             {CompileWhen, `run.turn == "3"`, []string{"column 10", "(int, string)", "int()"}},
		"syntax":                 {CompileWhen, `args.amount <`, []string{"syntax error"}},
		"empty":                  {CompileWhen, ``, []string{"syntax error"}},
		"other variable":         {CompileConflictKey, `run.name`, []string{"use args"}},
		"results in when":        {CompileWhen, `results.size() > 0`, []string{"'results'"}},
		"run is not tainted yet": {CompileWhen, `run.tainted`, []string{"'tainted'"}},
		"time zone":              {CompileWhen, `timestamp("2026-01-01T00:00:00Z").getHours("Europe/Berlin") == 0`, []string{"getHours"}},
		"no clock":               {CompileWhen, `now() > timestamp("2026-01-01T00:00:00Z")`, []string{"'now'"}},
		"named type":             {CompileWhen, `run{name: "x"} == run`, []string{"use a map"}},
		"well-known type":        {CompileWhen, `google.protobuf.Struct{} == args`, []string{"use a map"}},
		"dynamic pattern":        {CompileWhen, `args.a.matches(args.b)`, []string{"must be a literal"}},
		"bad pattern":            {CompileWhen, `args.a.matches("(")`, []string{"not a regular expression"}},
		"huge pattern":           {CompileWhen, `args.a.matches("[a-z]{600}[0-9]{600}")`, []string{"too large"}},
		"nested loops":           {CompileProgress, `results.map(a, results.map(b, results.map(c, results.map(d, [a, b, c, d]))))`, []string{"cost too much", "nested loops"}},
		"long":                   {CompileWhen, strings.Repeat(" ", 5000) + "true", []string{"4096 characters"}},
		"deep":                   {CompileWhen, strings.Repeat("(", 2000) + "true" + strings.Repeat(")", 2000), []string{"recursion"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			program, err := tt.compile(tt.expression)
			if err == nil || program != nil {
				t.Fatalf("compiled %q", tt.expression)
			}
			if len(ProblemsOf(err)) == 0 || len(err.Error()) > maxProblems*(maxProblemBytes+64) {
				t.Errorf("want a few short problems, got %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestEveryProblemIsReported(t *testing.T) {
	_, err := CompileWhen(`run.nmae == "x" && foo == 1 && run.turn == "a"`)
	if got := len(ProblemsOf(err)); got != 3 {
		t.Errorf("got %d problems, want 3: %v", got, err)
	}
}

func TestEval(t *testing.T) {
	results := []any{map[string]any{"value": "gold", "n": number("2"), "f": number("2.0")}, nil, []any{true}}
	tests := map[string]any{
		`"profile=" + results[0].value`:       "profile=gold",
		`results[0].n + 1`:                    int64(3),
		`results[0].f`:                        2.0,
		`results[1]`:                          nil,
		`results`:                             []any{map[string]any{"value": "gold", "n": int64(2), "f": 2.0}, nil, []any{true}},
		`{"a": {1: b"hi", true: 2u}}`:         map[string]any{"a": map[string]any{"1": "aGk=", "true": int64(2)}},
		`results.filter(r, r != null).size()`: int64(2),
		`18446744073709551615u`:               uint64(18446744073709551615),
		`duration("90s")`:                     "90s",
		`timestamp("2026-01-02T03:04:05Z")`:   "2026-01-02T03:04:05Z",
		`results[?0]`:                         map[string]any{"value": "gold", "n": int64(2), "f": 2.0},
	}
	for expression, want := range tests {
		t.Run(expression, func(t *testing.T) {
			program, err := CompileFinal(expression)
			if err != nil {
				t.Fatal(err)
			}
			got, err := program.Eval(map[string]any{"results": results})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestEvalErrors(t *testing.T) {
	secret := "s3cr3t"
	input := map[string]any{"args": map[string]any{
		"key": secret, "text": secret, "list": []any{number("1")}, "n": number("0"), "huge": number("1" + strings.Repeat("0", 40)),
	}}
	tests := map[string]struct {
		args map[string]any
		expr string
		want error
	}{
		"missing member": {nil, `args.missing == 1`, ErrMissing},
		"missing key":    {nil, `args[args.key] == 1`, ErrMissing},
		"missing item":   {nil, `args.list[7] == 1`, ErrMissing},
		"missing var":    {nil, `run.turn == 1`, ErrMissing},
		"type":           {nil, `args.text + 1 == 2`, ErrType},
		"order of types": {nil, `args.text < 1`, ErrType},
		"not a bool":     {nil, `args.text`, ErrType},
		"list as bool":   {nil, `args.list`, ErrType},
		"division":       {nil, `1 / args.n == 1`, ErrFailed},
		"conversion":     {nil, `int(args.text) == 1`, ErrFailed},
		"too large":      {map[string]any{"huge": number("1" + strings.Repeat("0", 40))}, `args.huge > 1`, ErrNumber},
	}
	delete(input["args"].(map[string]any), "huge")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			program, err := CompileWhen(tt.expr)
			if err != nil {
				t.Fatal(err)
			}
			in := input
			if tt.args != nil {
				in = map[string]any{"args": tt.args}
			}
			got, err := program.EvalBool(in)
			if got || !errors.Is(err, tt.want) {
				t.Fatalf("EvalBool = %v, %v; want %v", got, err, tt.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error quotes the input: %v", err)
			}
		})
	}
}

func TestValueErrors(t *testing.T) {
	for expression, want := range map[string]error{
		`1.0 / 0.0`:       ErrValue,
		`results[?900]`:   ErrValue,
		`optional.none()`: ErrValue,
		`type(results)`:   ErrValue,
		`[1, type(1)]`:    ErrValue,
		`results.map(r, results).map(r, [r, r, r, r, r, r, r, r, r, r, r, r, r])`: ErrCost,
	} {
		program, err := CompileFinal(expression)
		if err != nil {
			t.Fatal(err)
		}
		list := make([]any, 300)
		if _, err := program.Eval(map[string]any{"results": list}); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", expression, err, want)
		}
	}
}

// An expression that is accepted must not be able to take all time or memory,
// whatever it is evaluated on.
func TestBombs(t *testing.T) {
	share := `.map(x, [x, x, x, x, x, x, x, x, x, x])`
	shared := `[args.text]` + strings.Repeat(share, 12)
	doubled := `[args.list]` + strings.Repeat(`.map(x, x + x)`, 40) + `[0]`
	list := make([]any, 20_000)
	for i := range list {
		list[i] = strings.Repeat("a", 1)
	}
	input := map[string]any{"args": map[string]any{"text": strings.Repeat("a", 60_000), "list": list}}
	tests := map[string]string{
		"doubling text":         `[args.text]` + strings.Repeat(`.map(x, x + x)`, 40) + `.size() > 0`,
		"comparing shared":      shared + ` == ` + shared,
		"comparing shared, ne":  shared + ` != ` + shared,
		"searching shared":      `args.text in ` + shared,
		"formatting shared":     `"%s".format([` + shared + `]) == ""`,
		"quadratic replace":     `args.text.replace("", args.text) == ""`,
		"bounded replace":       `args.text.replace("a", args.text, 50000) == ""`,
		"joining":               `args.list.map(x, args.text).join(args.text) == ""`,
		"quadratic search":      `args.text.indexOf(args.text.substring(30000) + "b") > 0`,
		"loops":                 `args.list.exists(x, args.list.exists(y, x == y + "b"))`,
		"patterns":              `args.list.exists(x, args.text.matches("(a?){60}b"))`,
		"doubling lists, loop":  doubled + `.all(x, true)`,
		"doubling lists, in":    `"b" in ` + doubled,
		"doubling lists, equal": doubled + ` == ` + doubled,
		"dynamic concatenation": `args.list.map(x, args.text + args.text).size() == 0`,
	}
	for name, expression := range tests {
		t.Run(name, func(t *testing.T) {
			program, err := CompileWhen(expression)
			if err != nil {
				t.Logf("refused when accepted: %v", err)
				return
			}
			start := time.Now()
			if got, err := program.EvalBool(input); !errors.Is(err, ErrCost) {
				t.Errorf("EvalBool = %v, %v; want %v", got, err, ErrCost)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A function that comes with a new release of CEL has to be looked at before it is
// taken to cost the same whatever its operands are.
func TestEveryFunctionHasACost(t *testing.T) {
	constant := strings.Fields(`!_ -_ @not_strictly_false __not_strictly_false__ _%_ _&&_ _*_ _-_ _/_ _?._ _?_:_
		_[?_] _[_] _in_ _||_ bool dyn first getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHours
		getMilliseconds getMinutes getMonth getSeconds hasValue in last optional.none optional.of
		optional.ofNonZeroValue or orValue type value`)
	known := slices.Sorted(maps.Keys(measures))
	known = append(append(known, constant...), "matches")
	slices.Sort(known)
	got := slices.Sorted(maps.Keys(whenPlace.env().Functions()))
	if diff := cmp.Diff(known, got); diff != "" {
		t.Errorf("-known +got:\n%s", diff)
	}
}

// What is given as a shared structure must not be unfolded without bound either.
func TestSharedResult(t *testing.T) {
	program, err := CompileConflictKey(`[args.text]` + strings.Repeat(`.map(x, [x, x, x, x, x, x, x, x, x, x])`, 12))
	if err != nil {
		t.Skip(err)
	}
	if _, err := program.Eval(map[string]any{"args": map[string]any{"text": "a"}}); !errors.Is(err, ErrCost) {
		t.Errorf("got %v, want %v", err, ErrCost)
	}
}

func TestFromJSON(t *testing.T) {
	in := map[string]any{"a": []any{number("1"), "x"}, "b": number("-0.5"), "c": nil}
	got, err := FromJSON(in)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": []any{int64(1), "x"}, "b": -0.5, "c": nil}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if in["b"] != number("-0.5") || in["a"].([]any)[0] != number("1") {
		t.Error("FromJSON changed its argument")
	}
	for _, text := range []string{"18446744073709551616", "-9223372036854775809", "1e400"} {
		if _, err := FromJSON(number(text)); !errors.Is(err, ErrNumber) {
			t.Errorf("FromJSON(%s): got %v, want %v", text, err, ErrNumber)
		}
	}
	if _, err := FromJSON(struct{}{}); !errors.Is(err, ErrValue) {
		t.Errorf("FromJSON of a struct: got %v, want %v", err, ErrValue)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`args.amount <= 100.0`)
	f.Add(`run.nmae`)
	f.Add("a\n.b[?c]{d: 1}")
	f.Fuzz(func(t *testing.T, expression string) {
		program, err := CompileWhen(expression)
		if (program == nil) == (err == nil) {
			t.Fatalf("CompileWhen(%q) = %v, %v", expression, program, err)
		}
		if err != nil && len(ProblemsOf(err)) == 0 {
			t.Fatalf("no problem named: %v", err)
		}
		if program != nil {
			_, _ = program.EvalBool(vars())
		}
	})
}
