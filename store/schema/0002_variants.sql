-- Attempts of one run may differ in their server: the steps of a sweep, the sides of an A/B.

ALTER TABLE attempts ADD COLUMN variant VARCHAR;
COMMENT ON COLUMN attempts.variant IS 'JSON of which deployment served, and what differed from it; null: the deployment of the run as configured';
