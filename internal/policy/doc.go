// Package policy turns ToolPolicies into verdicts. It is pure: what it says depends
// on its arguments alone; there is no context, clock, client, log or goroutine.
//
// Compile looks at one policy and reports every problem it has. NewSet joins the
// policies that a run refers to. Set.Evaluate gives the verdict on one proposed
// call by a list of checks, the first of which that has something to say decides:
//
//	serverDeclared   no policy declares the server          Deny
//	toolDeclared     the server's own list lacks the tool   Deny
//	ruleDecides      the first rule that matches            Allow, Ask or Deny
//	                 a condition that fails                 Deny
//	(nothing)                                               Deny
//
// So whatever is not spelled out is denied: an unknown server or tool, a call that no
// rule matches, an expression that fails.
package policy
