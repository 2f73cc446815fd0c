// The page of traces.

import { ApprovalDesk } from "./approvals.js";

new ApprovalDesk({}).start();
