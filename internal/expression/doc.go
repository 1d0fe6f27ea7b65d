// Package expression compiles and evaluates the CEL that users write: the rules,
// conflict keys and child prompts of policies, progress measures, validations of answers, and the
// expressions of scripted models. It is pure: no I/O, no clock, no global state that
// changes.
//
// # Variables
//
// Each place has its own variables; anything else is refused when the expression is
// accepted:
//
//	rule when         args, tool, call, run   true or false
//	conflictKey       args                    any JSON value
//	prompt            args                    a string
//	progress          results                 any JSON value
//	validation        answer                  true or false
//	finalExpression   results                 any JSON value
//
// args is the arguments object. results is a list: the outputs of the last batch in
// call order, null for a failed call. answer is the final answer: the parsed JSON
// where the run declares a schema, else the text. The others have fixed members, so
// that a misspelt one is refused at once:
//
//	tool.name             full name, <server>.<tool>
//	tool.server           the part before the first dot
//	tool.effect           ReadOnly, Idempotent or NonIdempotent
//	call.id               id of the call, unique in the run
//	call.position         position in its batch, from 0
//	call.batchSize        number of calls in the batch
//	run.namespace         namespace of the AgentRun
//	run.name              name of the AgentRun
//	run.labels            its labels, a map
//	run.createdBy         who created it; empty where admission does not stamp it
//	run.turn              turn in which the call was proposed, from 1
//	run.usage.totalTokens, run.usage.inputTokens, run.usage.outputTokens
//
// # Language
//
// The standard functions and macros, optional values (args.?a.orValue(0)) and the
// strings extension. Numbers of different kinds compare by value, so that
// args.amount <= 100.0 holds for 100, 100.0 and 1e2. Left out are functions that
// depend on where the operator runs (time zones) and objects of named types; the
// pattern of matches has to be a literal.
//
// # Bounds
//
// An expression costs at most its place's limit at run time, measured by what it
// really touches. Operations that look at whole values, or whose result can be much
// larger than their operands, are measured before they run. An expression whose
// estimated cost on inputs of ordinary size is beyond all reason is refused when it
// is accepted.
package expression
