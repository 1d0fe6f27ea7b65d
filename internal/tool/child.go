package tool

// Child is what a run hands down to the run that one of its calls is.
type Child struct {
	// Tokens that it may use, and Cost in US dollars as a decimal, empty for no bound.
	Tokens int64
	Cost   string
	// ActiveSeconds and DeadlineSeconds bound its work, and all of its time.
	ActiveSeconds, DeadlineSeconds int32
	// Depth is its level in the tree, whose top has level 1.
	Depth int32
	// Root and RootUID name the run at the top.
	Root, RootUID string
	// CreatedBy is who created the run at the top, empty where nobody knows.
	CreatedBy string
}

// Spent is what a child run and the runs below it have cost.
type Spent struct {
	InputTokens, OutputTokens, CacheReadTokens, CacheWriteTokens, ReasoningTokens int64
	// Estimated is true where some of it was not reported.
	Estimated bool
	// CostPicos is in millionths of a millionth of a US dollar.
	CostPicos int64
}
