import{a,b,c}from"./part-0f46c25247beb089.js";import"./part-fd6e32d5a8362bc7.js";export{b as EditRule,a as Rules,c as Vacation};
