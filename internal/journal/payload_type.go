package journal

// Type implements Payload.
func (Claimed) Type() Type { return TypeClaimed }

// Type implements Payload.
func (Released) Type() Type { return TypeReleased }

// Type implements Payload.
func (RunStarted) Type() Type { return TypeRunStarted }

// Type implements Payload.
func (DecisionMade) Type() Type { return TypeDecisionMade }

// Type implements Payload.
func (ModelFailed) Type() Type { return TypeModelFailed }

// Type implements Payload.
func (ContextReduced) Type() Type { return TypeContextReduced }

// Type implements Payload.
func (ContextSummarised) Type() Type { return TypeContextSummarised }

// Type implements Payload.
func (ApprovalRequested) Type() Type { return TypeApprovalRequested }

// Type implements Payload.
func (ApprovalGranted) Type() Type { return TypeApprovalGranted }

// Type implements Payload.
func (ApprovalDenied) Type() Type { return TypeApprovalDenied }

// Type implements Payload.
func (CallDispatched) Type() Type { return TypeCallDispatched }

// Type implements Payload.
func (CallDeferred) Type() Type { return TypeCallDeferred }

// Type implements Payload.
func (CallCompleted) Type() Type { return TypeCallCompleted }

// Type implements Payload.
func (EffectReconciled) Type() Type { return TypeEffectReconciled }

// Type implements Payload.
func (TurnCompleted) Type() Type { return TypeTurnCompleted }

// Type implements Payload.
func (QuestionAsked) Type() Type { return TypeQuestionAsked }

// Type implements Payload.
func (QuestionAnswered) Type() Type { return TypeQuestionAnswered }

// Type implements Payload.
func (Suspended) Type() Type { return TypeSuspended }

// Type implements Payload.
func (Resumed) Type() Type { return TypeResumed }

// Type implements Payload.
func (Finished) Type() Type { return TypeFinished }
