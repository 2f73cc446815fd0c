// The page of settings.

import { ApprovalDesk } from "./approvals.js";
import { showKeys } from "./keys.js";
import { showSessions } from "./sessions.js";

new ApprovalDesk({}).start();
showKeys();
showSessions();
