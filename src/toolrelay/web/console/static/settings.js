// The page of settings.

import { ApprovalDesk } from "./approvals.js";

new ApprovalDesk({}).start();
