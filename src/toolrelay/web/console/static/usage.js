// The page of usage.

import { ApprovalDesk } from "./approvals.js";

new ApprovalDesk({}).start();
